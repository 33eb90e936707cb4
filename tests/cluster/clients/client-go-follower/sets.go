package main

import (
	"context"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

const setsWorkers = 4

// unlimited is the configuration of a program that has turned its own rate limit off.
func unlimited() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		config.QPS = -1
	}
	return config, err
}

// resyncSets reads every stateful set again at each resync, and writes its status unchanged.
func resyncSets(ctx context.Context, namespace string, period time.Duration, done *tally) error {
	config, err := unlimited()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	queue := workqueue.NewTyped[string]()
	enqueue := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, period, informers.WithNamespace(namespace))
	sets := factory.Apps().V1().StatefulSets().Informer()
	for _, handler := range []cache.ResourceEventHandler{
		done.cycleWhenResynced("set-00000"),
		cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, new any) { enqueue(new) }},
	} {
		if _, err := sets.AddEventHandler(handler); err != nil {
			return err
		}
	}
	for range setsWorkers {
		go func() {
			for {
				key, _ := queue.Get()
				done.begin(key)
				done.done(syncSet(ctx, client, key))
				queue.Done(key)
			}
		}()
	}
	sets.Run(ctx.Done())
	return nil
}

func syncSet(ctx context.Context, client kubernetes.Interface, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	set, err := client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = client.AppsV1().StatefulSets(namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	return err
}
