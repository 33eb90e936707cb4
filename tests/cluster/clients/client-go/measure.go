package main

import (
	"context"
	"net/http"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Measured is the cost of repeated reads of the same list in this process.
type Measured struct {
	Lists       int    `json:"lists"`
	Items       int    `json:"items"`
	ContentType string `json:"contentType"`
	CacheStatus string `json:"cacheStatus"`
	// The cost of each list.
	CPUMicros  int64 `json:"cpuMicros"`
	WallMicros int64 `json:"wallMicros"`
}

// seen keeps the headers of the last response.
type seen struct {
	next                     http.RoundTripper
	contentType, cacheStatus string
}

func (s *seen) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(request)
	if err == nil {
		s.contentType = response.Header.Get("Content-Type")
		s.cacheStatus = response.Header.Get("Cache-Status")
	}
	return response, err
}

// measure lists the pods that a selector selects in the namespace: once to warm up, then this many
// times.
func measure(ctx context.Context, count int, selector string) (*Measured, error) {
	config, err := newConfig()
	if err != nil {
		return nil, err
	}
	last := &seen{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		last.next = next
		return last
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	measured := &Measured{Lists: count}
	var cpu int64
	var begun time.Time
	for round := range count + 1 {
		if round == 1 {
			cpu, begun = cpuMicros(), time.Now()
		}
		list, err := client.CoreV1().Pods(*namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return nil, err
		}
		measured.Items = len(list.Items)
	}
	measured.CPUMicros = (cpuMicros() - cpu) / int64(count)
	measured.WallMicros = time.Since(begun).Microseconds() / int64(count)
	measured.ContentType, measured.CacheStatus = last.contentType, last.cacheStatus
	return measured, nil
}

func cpuMicros() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return (usage.Utime.Nano() + usage.Stime.Nano()) / 1000
}
