package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// reconciler remembers the state of each object that it reconciled.
type reconciler[T client.Object] struct {
	client client.Client
	empty  func() T
	report *report
	mutex  sync.Mutex
	seen   map[string]string
}

// Reconcile reads one object from the manager's cache.
func (r *reconciler[T]) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := r.empty()
	err := r.client.Get(ctx, request.NamespacedName, object)
	if client.IgnoreNotFound(err) != nil {
		r.report.failed("reconcile", err)
		return reconcile.Result{}, err
	}
	r.report.count("reconciled")
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if err != nil {
		delete(r.seen, request.Name)
	} else {
		r.seen[request.Name] = object.GetResourceVersion()
	}
	return reconcile.Result{}, nil
}

func (r *reconciler[T]) held() map[string]string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	all := map[string]string{}
	for name, version := range r.seen {
		all[name] = version
	}
	return all
}

// followWithManager runs a manager that leads, with a controller for pods and one for config maps.
func followWithManager(ctx context.Context, config *rest.Config, namespace, instance string, found *report) (map[string]held, error) {
	log.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics:                 server.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "leader-" + instance,
		LeaderElectionNamespace: namespace,
	})
	if err != nil {
		return nil, err
	}
	pods := &reconciler[*corev1.Pod]{client: manager.GetClient(), report: found, seen: map[string]string{},
		empty: func() *corev1.Pod { return &corev1.Pod{} }}
	maps := &reconciler[*corev1.ConfigMap]{client: manager.GetClient(), report: found, seen: map[string]string{},
		empty: func() *corev1.ConfigMap { return &corev1.ConfigMap{} }}
	if err := errors.Join(
		ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}).Complete(pods),
		ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).Complete(maps),
	); err != nil {
		return nil, err
	}
	// A manager that loses the lead ends, as managers do everywhere; the driver prints it.
	go func() { fail(fmt.Errorf("the manager ended: %w", manager.Start(ctx))) }()
	<-manager.Elected()
	reader := manager.GetCache()
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.ConfigMap{}} {
		// Returns once it is synced.
		if _, err := reader.GetInformer(ctx, object); err != nil {
			return nil, err
		}
	}
	return map[string]held{
		"pods@reconciled":       pods.held,
		"configmaps@reconciled": maps.held,
		"pods@cache":            listed(ctx, reader, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }),
		"configmaps@cache":      listed(ctx, reader, &corev1.ConfigMapList{}, func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items }),
	}, nil
}

func listed[L client.ObjectList, T any](ctx context.Context, reader client.Reader, list L, items func(L) []T) held {
	return func() map[string]string {
		all := map[string]string{}
		if reader.List(ctx, list) != nil {
			return all
		}
		for _, item := range items(list) {
			if object, ok := any(&item).(client.Object); ok {
				all[object.GetName()] = object.GetResourceVersion()
			}
		}
		return all
	}
}
