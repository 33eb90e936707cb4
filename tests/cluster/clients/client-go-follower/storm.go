package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// This limit is high. A round takes the time of its LISTs, without waits for the client's own
// limit.
const stormWorkers = 10

// lister lists the pods of each object that it reconciles, past the manager's cache.
type lister struct {
	reader client.Reader
	done   *tally
}

// Reconcile lists by label.
func (l *lister) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	l.done.begin(request.Name)
	pods := &corev1.PodList{}
	err := l.reader.List(ctx, pods, client.InNamespace(request.Namespace), client.MatchingLabels{"ring": request.Name})
	l.done.done(err)
	return reconcile.Result{}, err
}

// storm runs a manager that reconciles all config maps of the namespace again every period.
func storm(ctx context.Context, namespace string, period time.Duration, done *tally) error {
	log.SetLogger(logr.Discard())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   cache.Options{SyncPeriod: &period, DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	options := controller.Options{MaxConcurrentReconciles: stormWorkers}
	builder := ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).WithOptions(options)
	rings, informed := manager.GetCache().GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err := errors.Join(informed, builder.Complete(&lister{reader: manager.GetAPIReader(), done: done})); err != nil {
		return err
	}
	if _, err := rings.AddEventHandler(done.cycleWhenResynced("ring-00000")); err != nil {
		return err
	}
	return manager.Start(ctx)
}
