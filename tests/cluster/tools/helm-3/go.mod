module listless.dev/rig/helm-3

go 1.26.8
