package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// driver is a workload in a namespace: it begins a round each period, runs until the program ends,
// and counts its work in the tally.
type driver func(ctx context.Context, namespace string, period time.Duration, done *tally) error

var drivers = map[string]driver{
	"storm": storm, "resync": resyncSets, "agents": agents,
}

// tally is the work of a workload so far.
type tally struct {
	mutex      sync.Mutex
	operations int
	cycles     int
	begun      map[string]begun
	gaps       []float64
	errors     []string
}

// begun is the time when an operation of one name began last, and the number of times it began.
type begun struct {
	at    time.Time
	times int
}

// begin notes that an operation begins: the same one as the last of this name, a period later.
func (t *tally) begin(name string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := time.Now()
	last := t.begun[name]
	// A handler added after its informer has begun misses the first resync. That gap does not count as
	// a period.
	if last.times > 1 {
		t.gaps = append(t.gaps, now.Sub(last.at).Seconds())
	}
	t.begun[name] = begun{now, last.times + 1}
}

// done counts one operation, or records its error.
func (t *tally) done(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.errors = append(t.errors, err.Error())
	} else {
		t.operations++
	}
}

// cycle notes that the workload begins its round again.
func (t *tally) cycle() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.cycles++
}

// line is the tally as JSON; the period is the median time between two operations of one name.
func (t *tally) line() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	period, jitter := median(t.gaps), 0.0
	if period > 0 {
		distances := make([]float64, 0, len(t.gaps))
		for _, gap := range t.gaps {
			distances = append(distances, math.Abs(gap-period))
		}
		jitter = median(distances) / period
	}
	line, err := json.Marshal(map[string]any{
		"operations": t.operations, "cycles": t.cycles, "periodSeconds": period, "jitter": jitter,
		"errors": append([]string{}, t.errors...),
	})
	if err != nil {
		fail(err)
	}
	return string(line)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// cycleWhenResynced notes a cycle each time an informer replays the object of this name.
func (t *tally) cycleWhenResynced(name string) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, new any) {
		accessor, err := meta.Accessor(new)
		if err == nil && accessor.GetName() == name && version(old) == version(new) {
			t.cycle()
		}
	}}
}

// drive runs a workload and answers each line of its standard input with the tally.
func drive(run driver, namespace string, period time.Duration) {
	done := &tally{begun: map[string]begun{}}
	go func() {
		if err := run(context.Background(), namespace, period, done); err != nil {
			fail(err)
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(done.line())
	}
}
