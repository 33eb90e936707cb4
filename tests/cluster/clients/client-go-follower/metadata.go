package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	managed "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// followMetadata runs informers of metadata alone, with and without a selector, and dynamic ones.
func followMetadata(ctx context.Context, config *rest.Config, namespace, _ string, found *report) (map[string]held, error) {
	partial, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	selected := func(options *metav1.ListOptions) { options.LabelSelector = "churn=in" }
	all := metadatainformer.NewFilteredSharedInformerFactory(partial, resync, namespace, nil)
	in := metadatainformer.NewFilteredSharedInformerFactory(partial, resync, namespace, selected)
	whole := dynamicinformer.NewFilteredDynamicSharedInformerFactory(untyped, resync, namespace, nil)
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	return follow(ctx, map[string]cache.SharedIndexInformer{
		"pods@metadata":          all.ForResource(pods).Informer(),
		"configmaps@metadata":    all.ForResource(maps).Informer(),
		"pods-in@metadata":       in.ForResource(pods).Informer(),
		"configmaps-in@metadata": in.ForResource(maps).Informer(),
		"pods@dynamic":           whole.ForResource(pods).Informer(),
		"configmaps@dynamic":     whole.ForResource(maps).Informer(),
	}, found)
}

// followMetadataWithManager runs a manager whose controllers watch metadata alone.
func followMetadataWithManager(ctx context.Context, config *rest.Config, namespace, _ string, found *report) (map[string]held, error) {
	log.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache:   managed.Options{DefaultNamespaces: map[string]managed.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	follower := func(kind string) *reconciler[*metav1.PartialObjectMetadata] {
		return &reconciler[*metav1.PartialObjectMetadata]{client: manager.GetClient(), report: found,
			seen: map[string]string{}, empty: func() *metav1.PartialObjectMetadata { return partialOf(kind) }}
	}
	pods, maps := follower("Pod"), follower("ConfigMap")
	if err := errors.Join(
		ctrl.NewControllerManagedBy(manager).For(&corev1.Pod{}, builder.OnlyMetadata).Complete(pods),
		ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}, builder.OnlyMetadata).Complete(maps),
	); err != nil {
		return nil, err
	}
	go func() { fail(fmt.Errorf("the manager ended: %w", manager.Start(ctx))) }()
	<-manager.Elected()
	reader := manager.GetCache()
	for _, object := range []client.Object{partialOf("Pod"), partialOf("ConfigMap")} {
		// Returns once it is synced.
		if _, err := reader.GetInformer(ctx, object); err != nil {
			return nil, err
		}
	}
	copies := map[string]held{"pods@reconciled": pods.held, "configmaps@reconciled": maps.held}
	for name, kind := range map[string]string{"pods@cache": "Pod", "configmaps@cache": "ConfigMap"} {
		copies[name] = func() map[string]string {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
			held := map[string]string{}
			if reader.List(ctx, list) == nil {
				for _, item := range list.Items {
					held[item.Name] = item.ResourceVersion
				}
			}
			return held
		}
	}
	return copies, nil
}

func partialOf(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}
