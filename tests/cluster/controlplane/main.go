// One program with etcd and the kube-apiserver, so that the cluster tests need nothing but Go.
//
// Call it through a symlink named after the component, or as "controlplane <component> ...". With
// STOP_WITH_STDIN set it ends when its standard input does. It therefore never outlives a test
// process, however that ends.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name != "etcd" && name != "kube-apiserver" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	if os.Getenv("STOP_WITH_STDIN") != "" {
		go stopWithStdin()
	}
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver ...")
		os.Exit(2)
	}
}

func stopWithStdin() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	time.Sleep(10 * time.Second)
	os.Exit(1)
}
