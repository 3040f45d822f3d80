// Package faultproxy is a way from one program to the API server on which things go wrong as they are told to: answers
// come late, never or are refusals, watches break, clocks differ.
//
// A [Proxy] ends the program's TLS and HTTP/2 and begins its own to the API server, with the credentials that it was started
// with; so each program has a proxy of its own. What goes wrong is a [Fault]; several may at once:
//
//	proxy, err := faultproxy.Start(config)
//	kubeconfig := proxy.Kubeconfig() // for the program
//	heal := proxy.Inject(faultproxy.Refuse{Share: 0.5, Code: http.StatusTooManyRequests})
//	...
//	heal()
package faultproxy
