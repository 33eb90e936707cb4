// The workload of the tests on a node: a client-go program that knows nothing of Listless.
//
// As "poll" it lists pods for ever and reports its results over HTTP. As "once" it lists some times
// and ends. As "stand" it only runs the requests that it receives over HTTP, from its own pod.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

var begun = time.Now()

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: workload poll|once|stand"))
	}
	switch os.Args[1] {
	case "poll":
		tally := &tally{}
		for number := range setting("CLIENTS", 4) {
			client, err := newPoller(number, tally)
			fail(err)
			go client.poll(time.Duration(setting("PERIOD_MILLIS", 200)) * time.Millisecond)
		}
		fail(serve(tally))
	case "once":
		tally := &tally{}
		client, err := newPoller(0, tally)
		fail(err)
		for range setting("LISTS", 20) {
			client.list()
			time.Sleep(time.Duration(setting("PERIOD_MILLIS", 100)) * time.Millisecond)
		}
		seen := tally.seen()
		line, err := json.Marshal(seen)
		fail(err)
		fmt.Println(string(line))
		if len(seen.Failures) > 0 {
			os.Exit(1)
		}
	case "stand":
		fail(serve(&tally{}))
	default:
		fail(fmt.Errorf("not something to be: %q", os.Args[1]))
	}
}

// setting is a number from the environment.
func setting(name string, usual int) int {
	number, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return usual
	}
	return number
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
