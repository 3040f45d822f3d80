package agent_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/placement/contract"
)

// exampleCluster is an API server with one Lease, and a controller that gives the holder of the
// Lease one virtual replica. It has just what an agent needs.
type exampleCluster struct {
	*httptest.Server

	mu       sync.Mutex
	lease    *coordinationv1.Lease
	versions int
}

func newExampleCluster() *exampleCluster {
	c := &exampleCluster{}
	mux := http.NewServeMux()
	const leases, configMaps = "/apis/coordination.k8s.io/v1/namespaces/shop/leases", "/api/v1/namespaces/shop/configmaps"
	mux.HandleFunc("GET "+leases+"/worker-0", c.readLease)
	mux.HandleFunc("POST "+leases, c.writeLease)
	mux.HandleFunc("PUT "+leases+"/worker-0", c.writeLease)
	mux.HandleFunc("GET "+configMaps+"/worker-0", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, c.contract()) })
	mux.HandleFunc("GET "+configMaps, c.watchContract)
	c.Server = httptest.NewServer(mux)
	return c
}

func (c *exampleCluster) config() *rest.Config {
	return &rest.Config{Host: c.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

func (c *exampleCluster) holder() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.lease.Spec.HolderIdentity
}

func (c *exampleCluster) readLease(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lease == nil {
		respond(w, http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
		return
	}
	respond(w, http.StatusOK, c.lease)
}

func (c *exampleCluster) writeLease(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lease := &coordinationv1.Lease{}
	if err := json.NewDecoder(r.Body).Decode(lease); err != nil {
		respond(w, http.StatusBadRequest, metav1.Status{Status: metav1.StatusFailure, Message: err.Error()})
		return
	}
	if c.lease != nil && lease.ResourceVersion != c.lease.ResourceVersion {
		respond(w, http.StatusConflict, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: http.StatusConflict})
		return
	}
	c.versions++
	lease.UID, lease.ResourceVersion = "9c55", strconv.Itoa(c.versions)
	c.lease = lease
	respond(w, http.StatusOK, lease)
}

// contract is what the controller gives to the holder of the Lease.
func (c *exampleCluster) contract() *corev1.ConfigMap {
	granted := contract.Contract{Incarnation: c.holder(), Generation: 1, Entries: []contract.Entry{{
		Reference: contract.Reference{UID: "0b8a", APIVersion: "example.com/v1", Kind: "Queue", Namespace: "shop", Name: "orders"},
		Decision:  17, Changed: 1, Of: 12, Replicas: map[int32]int64{3: 17},
	}}}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "worker-0"},
		Data:       map[string]string{contract.DataKey: string(granted.Encode())},
	}
}

// watchContract sends the contract. It never changes.
func (c *exampleCluster) watchContract(w http.ResponseWriter, r *http.Request) {
	respond(w, http.StatusOK, map[string]any{"type": "ADDED", "object": c.contract()})
	_ = http.NewResponseController(w).Flush() // without the client there is no watch
	<-r.Context().Done()
}

// respond writes an object.
func respond(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // without the client there is no answer
}
