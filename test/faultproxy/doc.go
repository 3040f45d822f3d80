// Package faultproxy forwards requests of one program to the API server, and injects faults:
// responses are delayed, dropped or replaced by errors, watches break, clocks differ.
//
// A [Proxy] terminates the program's TLS and HTTP/2, and connects to the API server with the
// credentials that it was started with, so each program needs its own proxy. A [Fault] describes a
// failure; several faults may be active at the same time:
//
//	proxy, err := faultproxy.Start(config)
//	kubeconfig := proxy.Kubeconfig() // for the program
//	heal := proxy.Inject(faultproxy.Refuse{Share: 0.5, Code: http.StatusTooManyRequests})
//	...
//	heal()
package faultproxy
