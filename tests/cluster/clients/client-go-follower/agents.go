package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

const agentCount = 50

// agents runs one agent for each node; each lists the pods of its node in a namespace, or in all if it is empty, over
// connections of its own.
func agents(ctx context.Context, namespace string, period time.Duration, done *tally) error {
	config, err := unlimited()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for number := range agentCount {
		own := rest.CopyConfig(config)
		// Configurations with their own dialers share no connections.
		own.Dial = (&net.Dialer{}).DialContext
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			return err
		}
		running.Go(func() {
			time.Sleep(period * time.Duration(number) / agentCount)
			agent(ctx, client.CoreV1().Pods(namespace), number, period, done)
		})
	}
	running.Wait()
	return nil
}

func agent(ctx context.Context, pods typed.PodInterface, number int, period time.Duration, done *tally) {
	options := metav1.ListOptions{FieldSelector: fmt.Sprintf("spec.nodeName=node-%d", number)}
	for ticker := time.NewTicker(period); ; <-ticker.C {
		if number == 0 {
			done.cycle()
		}
		done.begin(options.FieldSelector)
		_, err := pods.List(ctx, options)
		done.done(err)
	}
}
