// Unpack writes the text of a gzip file, which must be one member.
package main

import (
	"bufio"
	"compress/gzip"
	"io"
	"log"
	"os"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	packed := bufio.NewReader(file)
	text, err := gzip.NewReader(packed)
	if err != nil {
		log.Fatal(err)
	}
	text.Multistream(false)
	if _, err := io.Copy(os.Stdout, text); err != nil {
		log.Fatal(err)
	}
	if rest, _ := io.Copy(io.Discard, packed); rest > 0 {
		log.Fatalf("%d bytes follow the member", rest)
	}
}
