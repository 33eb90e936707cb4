package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
)

// operation is one kind of write and the check that it took effect.
type operation struct {
	name string
	once func(ctx context.Context, client kubernetes.Interface, number int) (missed bool, err error)
}

var operations = []operation{
	{"create", create},
	{"update", changing("update", update)},
	{"json-patch", changing("json-patch", patch(types.JSONPatchType,
		`[{"op":"add","path":"/data/value","value":"%s"}]`))},
	{"merge-patch", changing("merge-patch", patch(types.MergePatchType, `{"data":{"value":"%s"}}`))},
	{"strategic-patch", changing("strategic-patch", patch(types.StrategicMergePatchType,
		`{"data":{"value":"%s"}}`))},
	{"apply", changing("apply", apply)},
	{"delete", remove},
	{"delete-collection", removeCollection},
	{"finalizer", removeFinalizer},
	{"eviction", evict},
}

const label = "operation"

func configMap(name, kind string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: kind}},
		Data:       map[string]string{"value": ""},
	}
}

func list(ctx context.Context, client kubernetes.Interface, kind string) (*corev1.ConfigMapList, error) {
	options := metav1.ListOptions{LabelSelector: label + "=" + kind}
	return client.CoreV1().ConfigMaps(*namespace).List(ctx, options)
}

// find returns the object in a LIST, and the number of its occurrences.
func find(items []corev1.ConfigMap, name string) (found *corev1.ConfigMap, times int) {
	for index := range items {
		if items[index].Name == name {
			found, times = &items[index], times+1
		}
	}
	return found, times
}

// shown reports whether GET and LIST both show an object as a write left it.
func shown(ctx context.Context, client kubernetes.Interface, want *corev1.ConfigMap) (bool, error) {
	got, err := client.CoreV1().ConfigMaps(*namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	all, err := list(ctx, client, want.Labels[label])
	if err != nil {
		return false, err
	}
	listed, times := find(all.Items, want.Name)
	return got.ResourceVersion == want.ResourceVersion && times == 1 &&
		listed.ResourceVersion == want.ResourceVersion &&
		got.Data["value"] == want.Data["value"] && listed.Data["value"] == want.Data["value"], nil
}

// gone reports whether GET and LIST both show that an object does not exist.
func gone(ctx context.Context, client kubernetes.Interface, name, kind string) (bool, error) {
	_, err := client.CoreV1().ConfigMaps(*namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	all, err := list(ctx, client, kind)
	if err != nil {
		return false, err
	}
	_, times := find(all.Items, name)
	return times == 0, nil
}

func create(ctx context.Context, client kubernetes.Interface, number int) (bool, error) {
	maps := client.CoreV1().ConfigMaps(*namespace)
	made, err := maps.Create(ctx, configMap(fmt.Sprintf("create-%d", number), "create"), metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	seen, err := shown(ctx, client, made)
	// Removed again so that the lists stay short.
	return !seen, errors.Join(err, maps.Delete(ctx, made.Name, metav1.DeleteOptions{}))
}

type change func(ctx context.Context, client kubernetes.Interface, held *corev1.ConfigMap, value string) (*corev1.ConfigMap, error)

// changing makes an operation of a change to one object that stays.
func changing(kind string, change change) func(context.Context, kubernetes.Interface, int) (bool, error) {
	var held *corev1.ConfigMap
	return func(ctx context.Context, client kubernetes.Interface, number int) (bool, error) {
		var err error
		if held == nil {
			maps := client.CoreV1().ConfigMaps(*namespace)
			held, err = maps.Create(ctx, configMap("changing-"+kind, kind), metav1.CreateOptions{})
			if err != nil {
				return false, err
			}
		}
		held, err = change(ctx, client, held, fmt.Sprintf("value-%d", number))
		if err != nil {
			return false, err
		}
		seen, err := shown(ctx, client, held)
		return !seen, err
	}
}

func update(ctx context.Context, client kubernetes.Interface, held *corev1.ConfigMap, value string) (*corev1.ConfigMap, error) {
	held.Data["value"] = value
	return client.CoreV1().ConfigMaps(*namespace).Update(ctx, held, metav1.UpdateOptions{})
}

func patch(kind types.PatchType, template string) change {
	return func(ctx context.Context, client kubernetes.Interface, held *corev1.ConfigMap, value string) (*corev1.ConfigMap, error) {
		body := fmt.Appendf(nil, template, value)
		return client.CoreV1().ConfigMaps(*namespace).Patch(ctx, held.Name, kind, body, metav1.PatchOptions{})
	}
}

func apply(ctx context.Context, client kubernetes.Interface, held *corev1.ConfigMap, value string) (*corev1.ConfigMap, error) {
	object := applycore.ConfigMap(held.Name, *namespace).WithData(map[string]string{"value": value})
	options := metav1.ApplyOptions{FieldManager: "rig", Force: true}
	return client.CoreV1().ConfigMaps(*namespace).Apply(ctx, object, options)
}

func remove(ctx context.Context, client kubernetes.Interface, number int) (bool, error) {
	maps := client.CoreV1().ConfigMaps(*namespace)
	name := fmt.Sprintf("delete-%d", number)
	if _, err := maps.Create(ctx, configMap(name, "delete"), metav1.CreateOptions{}); err != nil {
		return false, err
	}
	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return false, err
	}
	absent, err := gone(ctx, client, name, "delete")
	return !absent, err
}

func removeCollection(ctx context.Context, client kubernetes.Interface, number int) (bool, error) {
	maps := client.CoreV1().ConfigMaps(*namespace)
	for part := range 2 {
		name := fmt.Sprintf("collection-%d-%d", number, part)
		if _, err := maps.Create(ctx, configMap(name, "collection"), metav1.CreateOptions{}); err != nil {
			return false, err
		}
	}
	options := metav1.ListOptions{LabelSelector: label + "=collection"}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, options); err != nil {
		return false, err
	}
	left, err := list(ctx, client, "collection")
	if err != nil {
		return false, err
	}
	absent, err := gone(ctx, client, fmt.Sprintf("collection-%d-0", number), "collection")
	return len(left.Items) > 0 || !absent, err
}

func removeFinalizer(ctx context.Context, client kubernetes.Interface, number int) (bool, error) {
	maps := client.CoreV1().ConfigMaps(*namespace)
	object := configMap(fmt.Sprintf("finalizer-%d", number), "finalizer")
	object.Finalizers = []string{"example.com/stay"}
	if _, err := maps.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	if err := maps.Delete(ctx, object.Name, metav1.DeleteOptions{}); err != nil {
		return false, err
	}
	held, err := maps.Get(ctx, object.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if held.DeletionTimestamp == nil {
		return true, nil
	}
	held.Finalizers = nil
	if _, err := maps.Update(ctx, held, metav1.UpdateOptions{}); err != nil {
		return false, err
	}
	absent, err := gone(ctx, client, object.Name, "finalizer")
	return !absent, err
}

func evict(ctx context.Context, client kubernetes.Interface, number int) (bool, error) {
	pods := client.CoreV1().Pods(*namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("evicted-%d", number), Labels: map[string]string{label: "eviction"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/app:1"}}},
	}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: *namespace}}
	if err := pods.EvictV1(ctx, eviction); err != nil {
		return false, err
	}
	if _, err := pods.Get(ctx, pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return true, err
	}
	left, err := pods.List(ctx, metav1.ListOptions{LabelSelector: label + "=eviction"})
	if err != nil {
		return false, err
	}
	return len(left.Items) > 0, nil
}

// poll lists its own objects every period and expects exactly what it wrote.
func (r *run) poll(ctx context.Context, number int) {
	kind := fmt.Sprintf("poller-%d", number)
	change := changing(kind, update)
	ticker := time.NewTicker(*period)
	defer ticker.Stop()
	for round := 0; ; round++ {
		missed, err := change(ctx, r.client, round)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.failed(fmt.Errorf("poller %d: %w", number, err))
			return
		}
		r.polled()
		r.count("poll", missed)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
