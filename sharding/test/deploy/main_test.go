package deploy

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/manifests"
)

const (
	period, patience = 100 * time.Millisecond, 3 * time.Minute

	// system and checksums are the namespaces of the sharder and of the example.
	system, checksums = "sharder-system", "checksums"
)

// The directories that can be applied.
var (
	root    = filepath.Join("..", "..", "deploy")
	crd     = filepath.Join(root, "crd")
	base    = filepath.Join(root, "base")
	ha      = filepath.Join(root, "overlays", "ha")
	example = filepath.Join(root, "example")

	monitoring = filepath.Join(root, "monitoring")
)

// plane has an audit log. The names in the manifests are fixed, so only one test uses it at a time.
var plane *controlplane.ControlPlane

func TestMain(m *testing.M) {
	logf.SetLogger(logr.Discard())
	utilruntime.Must(v1alpha1.AddToScheme(scheme.Scheme))
	os.Exit(manifests.Main(m, func(c *controlplane.ControlPlane) { plane = c }))
}
