package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	resync    = 2 * time.Second
	syncLimit = 30 * time.Second
)

// followWithInformers runs typed and dynamic shared informers, with and without a selector.
func followWithInformers(ctx context.Context, config *rest.Config, namespace, _ string, found *report) (map[string]held, error) {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	selected := func(options *metav1.ListOptions) { options.LabelSelector = "churn=in" }
	all := informers.NewSharedInformerFactoryWithOptions(typed, resync, informers.WithNamespace(namespace))
	in := informers.NewSharedInformerFactoryWithOptions(typed, resync, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(selected))
	dynamic := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, resync, namespace, selected)
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	followers := map[string]cache.SharedIndexInformer{
		"pods@typed":            all.Core().V1().Pods().Informer(),
		"configmaps@typed":      all.Core().V1().ConfigMaps().Informer(),
		"pods-in@typed":         in.Core().V1().Pods().Informer(),
		"configmaps-in@typed":   in.Core().V1().ConfigMaps().Informer(),
		"configmaps-in@dynamic": dynamic.ForResource(maps).Informer(),
	}
	return follow(ctx, followers, found)
}

// follow runs informers and waits until all are synced.
func follow(ctx context.Context, followers map[string]cache.SharedIndexInformer, found *report) (map[string]held, error) {
	copies := map[string]held{}
	for name, informer := range followers {
		if err := listen(ctx, name, informer, found); err != nil {
			return nil, err
		}
		copies[name] = func() map[string]string { return versions(informer.GetStore().List()) }
		go informer.Run(ctx.Done())
	}
	limited, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	for name, informer := range followers {
		if !cache.WaitForCacheSync(limited.Done(), informer.HasSynced) {
			return nil, fmt.Errorf("%s: not synced", name)
		}
	}
	return copies, nil
}

// listen counts the events of an informer, and the errors it reports before it continues.
func listen(ctx context.Context, name string, informer cache.SharedIndexInformer, found *report) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { found.count("added") },
		UpdateFunc: func(old, new any) {
			if version(old) == version(new) {
				found.count("resynced")
			} else {
				found.count("updated")
			}
		},
		DeleteFunc: func(object any) {
			if _, missed := object.(cache.DeletedFinalStateUnknown); missed {
				found.count("missed a deletion")
			} else {
				found.count("deleted")
			}
		},
	})
	if err != nil {
		return err
	}
	return informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		found.failed(name, err)
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	})
}

func version(object any) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}

func versions(objects []any) map[string]string {
	all := map[string]string{}
	for _, object := range objects {
		if accessor, err := meta.Accessor(object); err == nil {
			all[accessor.GetName()] = accessor.GetResourceVersion()
		}
	}
	return all
}
