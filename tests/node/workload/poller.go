package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Seen is the results of the clients since they began, or since their last reset.
type Seen struct {
	Began    time.Time `json:"began"`
	Lists    int       `json:"lists"`
	Items    int       `json:"items"`
	Hits     int       `json:"hits"`
	Failures []Failure `json:"failures"`
	// Attempted connections, and failed ones.
	Dials         int   `json:"dials"`
	FailedDials   int   `json:"failedDials"`
	LongestMillis int64 `json:"longestMillis"`
}

// Failure is a list that failed.
type Failure struct {
	Client int       `json:"client"`
	When   time.Time `json:"when"`
	Error  string    `json:"error"`
}

type tally struct {
	mutex sync.Mutex
	sums  Seen
}

// A poller has a connection of its own, and keeps the CA bundle of its start.
type poller struct {
	number int
	tally  *tally
	client kubernetes.Interface
	// Reports whether the last answer came from memory; counted with its list, so that neither runs
	// ahead.
	hit *atomic.Bool
}

func newPoller(number int, tally *tally) (*poller, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	// Programs that read the file once do the same.
	if config.CAData, err = os.ReadFile(config.CAFile); err != nil {
		return nil, err
	}
	config.CAFile = ""
	if server := os.Getenv("SERVER"); server != "" {
		config.Host = server
		config.CAData = []byte(os.Getenv("SERVER_AUTHORITY"))
	}
	config.QPS, config.Timeout = -1, 20*time.Second
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dialer.DialContext(ctx, network, address)
		tally.dialled(err)
		return connection, err
	}
	hit := &atomic.Bool{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &watchful{next, hit} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &poller{number, tally, client, hit}, nil
}

func (p *poller) poll(period time.Duration) {
	for range time.Tick(period) {
		p.list()
	}
}

func (p *poller) list() {
	began := time.Now()
	list, err := p.client.CoreV1().Pods(os.Getenv("LISTED")).List(context.Background(), metav1.ListOptions{})
	p.tally.mutex.Lock()
	defer p.tally.mutex.Unlock()
	sums := &p.tally.sums
	sums.LongestMillis = max(sums.LongestMillis, time.Since(began).Milliseconds())
	if err != nil {
		sums.Failures = append(sums.Failures, Failure{p.number, time.Now(), err.Error()})
		return
	}
	sums.Lists++
	if p.hit.Load() {
		sums.Hits++
	}
	sums.Items = len(list.Items)
}

// watchful reads the headers of responses.
type watchful struct {
	next http.RoundTripper
	hit  *atomic.Bool
}

func (w *watchful) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	w.hit.Store(err == nil && strings.Contains(response.Header.Get("Cache-Status"), "; hit"))
	return response, err
}

func (t *tally) dialled(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sums.Dials++
	if err != nil {
		t.sums.FailedDials++
	}
}

func (t *tally) seen() Seen {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	seen := t.sums
	seen.Began = begun
	return seen
}

func (t *tally) reset() {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.sums = Seen{}
}
