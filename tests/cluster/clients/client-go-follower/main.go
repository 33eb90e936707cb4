// Follows one namespace in one of the ways of Go programs, with unmodified libraries.
//
// It reads KUBECONFIG and prints a line when everything follows. After a line `settle` at its
// standard input, it waits until all copies hold the object `marker`. Then it prints the copies. Or
// it loads the apiserver as one of the drivers does. It then prints its tally for each line of its
// standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	settleLimit = 120 * time.Second
	settlePoll  = 50 * time.Millisecond
)

// report is the line this program prints; all followers add to it.
type report struct {
	mutex  sync.Mutex
	Caches map[string]map[string]string `json:"caches"`
	Counts map[string]int               `json:"counts"`
	Errors []string                     `json:"errors"`
}

func (r *report) count(what string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Counts[what]++
}

func (r *report) failed(who string, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Errors = append(r.Errors, fmt.Sprintf("%s: %v", who, err))
}

// held returns the resourceVersion of each object in a copy, by name.
type held func() map[string]string

func main() {
	flag.Parse()
	klog.SetOutput(os.Stderr)
	if driver := drivers[flag.Arg(0)]; driver != nil && flag.NArg() == 3 {
		period, err := time.ParseDuration(flag.Arg(2))
		if err != nil {
			fail(err)
		}
		drive(driver, flag.Arg(1), period)
		return
	}
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "usage: informers|manager|metadata|metadata-manager NAMESPACE INSTANCE, or storm|resync|agents NAMESPACE PERIOD")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fail(err)
	}
	found := &report{Counts: map[string]int{}, Errors: []string{}}
	ways := map[string]func(context.Context, *rest.Config, string, string, *report) (map[string]held, error){
		"informers": followWithInformers, "manager": followWithManager,
		"metadata": followMetadata, "metadata-manager": followMetadataWithManager,
	}
	way := ways[flag.Arg(0)]
	if way == nil {
		fail(fmt.Errorf("no way is called %s", flag.Arg(0)))
	}
	copies, err := way(context.Background(), config, flag.Arg(1), flag.Arg(2), found)
	if err != nil {
		fail(err)
	}
	fmt.Println(`{"ready": true}`)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	settle(copies)
	found.print(copies)
}

func settle(copies map[string]held) {
	for deadline := time.Now().Add(settleLimit); time.Now().Before(deadline); time.Sleep(settlePoll) {
		settled := true
		for _, held := range copies {
			_, has := held()["marker"]
			settled = settled && has
		}
		if settled {
			return
		}
	}
}

func (r *report) print(copies map[string]held) {
	caches := map[string]map[string]string{}
	for name, held := range copies {
		caches[name] = held()
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Caches = caches
	line, err := json.Marshal(r)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
