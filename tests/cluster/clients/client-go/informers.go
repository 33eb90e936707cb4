package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"sort"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Caches is the content of informers: the different contents, and the number of informers with
// each.
type Caches struct {
	Informers int `json:"informers"`
	Synced    int `json:"synced"`
	// Contents counts the caches of each content by its digest.
	Contents map[string]int `json:"contents"`
	// Objects is the content of the first of them: the version of each object.
	Objects map[string]string `json:"objects"`
}

// follow runs informers of the pods of the namespace, each with a client of its own. It prints a
// line about their caches for each line it reads.
func follow(ctx context.Context, count int) error {
	followed := make([]cache.SharedIndexInformer, 0, count)
	for range count {
		client, err := newClient()
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*namespace))
		followed = append(followed, factory.Core().V1().Pods().Informer())
		factory.Start(ctx.Done())
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		line, err := json.Marshal(cachesOf(followed))
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return lines.Err()
}

func cachesOf(followed []cache.SharedIndexInformer) Caches {
	caches := Caches{Informers: len(followed), Contents: map[string]int{}}
	for number, informer := range followed {
		if informer.HasSynced() {
			caches.Synced++
		}
		held := map[string]string{}
		for _, object := range informer.GetStore().List() {
			pod := object.(*corev1.Pod)
			held[pod.Name] = pod.ResourceVersion
		}
		caches.Contents[digest(held)]++
		if number == 0 {
			caches.Objects = held
		}
	}
	return caches
}

func digest(held map[string]string) string {
	names := make([]string, 0, len(held))
	for name := range held {
		names = append(names, name)
	}
	sort.Strings(names)
	sum := fnv.New64a()
	for _, name := range names {
		fmt.Fprintf(sum, "%s=%s\n", name, held[name])
	}
	return fmt.Sprintf("%x", sum.Sum64())
}
