// A client-go program for the cluster tests: an unmodified typed client that speaks protobuf.
//
// It reads KUBECONFIG, works in one namespace that exists, and prints one line of JSON. A GET and a
// LIST follow every write at once; one that does not show the write is a miss.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Result is the line this program prints.
type Result struct {
	Client     string            `json:"client"`
	Operations map[string]*Count `json:"operations"`
	Polls      int               `json:"polls"`
	Errors     []string          `json:"errors"`
}

// Count is the number of runs of an operation, and the number of reads that did not show it.
type Count struct {
	Iterations int `json:"iterations"`
	Misses     int `json:"misses"`
}

var (
	namespace  = flag.String("namespace", "client-go", "namespace to work in")
	iterations = flag.Int("iterations", 100, "iterations per kind of write")
	pollers    = flag.Int("pollers", 0, "loops that LIST every period")
	period     = flag.Duration("period", 3*time.Second, "time between two LISTs of a poller")
	followers  = flag.Int("informers", 0, "only run so many informers of pods, and tell of their caches")
	jsonOnly   = flag.Bool("json", false, "speak JSON instead of protobuf")
	lists      = flag.Int("lists", 0, "only list the pods so often, and tell what that cost")
	selector   = flag.String("selector", "", "which pods to list")
	accept     = flag.String("accept", "application/vnd.kubernetes.protobuf,application/json",
		"what answers are accepted in")
)

func main() {
	flag.Parse()
	if *followers > 0 {
		if err := follow(context.Background(), *followers); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	if *lists > 0 {
		measured, err := measure(context.Background(), *lists, *selector)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		report(measured)
		return
	}
	client, err := newClient()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	run := &run{client: client, result: Result{Client: "client-go", Operations: map[string]*Count{}}}
	run.all(context.Background())
	report(run.result)
}

// report prints a line of JSON.
func report(result any) {
	line, err := json.Marshal(result)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println(string(line))
}

func newConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if !*jsonOnly {
		config.ContentType = "application/vnd.kubernetes.protobuf"
		config.AcceptContentTypes = *accept
	}
	return config, nil
}

func newClient() (kubernetes.Interface, error) {
	config, err := newConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// run collects the results of all loops.
type run struct {
	client kubernetes.Interface
	mutex  sync.Mutex
	result Result
}

// all runs every kind of write side by side, with pollers beside them.
func (r *run) all(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	var pollersDone, writersDone sync.WaitGroup
	for number := range *pollers {
		pollersDone.Go(func() { r.poll(ctx, number) })
	}
	for _, operation := range operations {
		writersDone.Go(func() { r.repeat(ctx, operation) })
	}
	writersDone.Wait()
	stop()
	pollersDone.Wait()
}

func (r *run) repeat(ctx context.Context, operation operation) {
	for number := range *iterations {
		missed, err := operation.once(ctx, r.client, number)
		if err != nil {
			r.failed(fmt.Errorf("%s %d: %w", operation.name, number, err))
			return
		}
		r.count(operation.name, missed)
	}
}

func (r *run) count(name string, missed bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.result.Operations[name] == nil {
		r.result.Operations[name] = &Count{}
	}
	r.result.Operations[name].Iterations++
	if missed {
		r.result.Operations[name].Misses++
	}
}

func (r *run) polled() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.result.Polls++
}

func (r *run) failed(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.result.Errors = append(r.result.Errors, err.Error())
}
