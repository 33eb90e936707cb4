package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"time"
)

// Reached is the result of a request that was sent from here.
type Reached struct {
	Status      int    `json:"status"`
	CacheStatus string `json:"cacheStatus"`
	Body        string `json:"body"`
	Error       string `json:"error"`
}

// serve reports the results, and sends from here the requests it receives.
func serve(tally *tally) error {
	http.HandleFunc("GET /seen", func(answer http.ResponseWriter, _ *http.Request) {
		tell(answer, tally.seen())
	})
	http.HandleFunc("GET /reset", func(answer http.ResponseWriter, _ *http.Request) {
		seen := tally.seen()
		tally.reset()
		tell(answer, seen)
	})
	http.HandleFunc("GET /reach", func(answer http.ResponseWriter, request *http.Request) {
		query := request.URL.Query()
		tell(answer, reach(query.Get("url"), query.Get("bearer")))
	})
	http.HandleFunc("GET /file", func(answer http.ResponseWriter, request *http.Request) {
		content, err := os.ReadFile(request.URL.Query().Get("path"))
		if err != nil {
			http.Error(answer, err.Error(), http.StatusNotFound)
			return
		}
		_, _ = answer.Write(content)
	})
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	return http.ListenAndServe(":"+port, nil)
}

func tell(answer http.ResponseWriter, what any) {
	answer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(answer).Encode(what)
}

// reach sends a request as an unauthenticated caller that trusts any server.
func reach(url, bearer string) Reached {
	trusting := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := http.Client{Transport: trusting, Timeout: 5 * time.Second}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return Reached{Error: err.Error()}
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := client.Do(request)
	if err != nil {
		return Reached{Error: err.Error()}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	reached := Reached{Status: response.StatusCode, CacheStatus: response.Header.Get("Cache-Status"), Body: string(body)}
	if err != nil {
		reached.Error = err.Error()
	}
	return reached
}
