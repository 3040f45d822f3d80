package cluster_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/test/pages"
)

const (
	releasePage = "docs/tutorials/install-a-release.md"
	// releaseEnv names the directory with the files of a release.
	releaseEnv = "CLUSTER_RELEASE"
)

var releaseTreatments = pages.Treatments{
	{Prefix: "minikube start --nodes=2 --container-runtime=containerd", Instead: "kubectl wait --for=condition=Ready node/minikube node/minikube-m02", Why: "the cluster is up"},
	loadImage, restartKubelet,
	{Prefix: "sed "},
	{Prefix: "tar -xzf "},
	{Prefix: "PATH=$PWD:$PATH"},
	{Prefix: "kubectl wait "},
	{Prefix: "kubectl label "},
	{Prefix: "kubectl delete "},
	{Prefix: "kubectl get ", Kind: pages.Look},
	{Prefix: "kubectl nodekeeper list", Kind: pages.Look},
}

func TestEveryCommandOfTheReleaseIsKnown(t *testing.T) {
	assert.Empty(t, releaseTreatments.Check(readPage(t, releasePage), map[string]string{
		"kubectl apply --server-side -f install-minikube.yaml": "this cluster reaches no registry",
		"minikube image load": "the prefix of commands in step 1",
		"minikube ssh":        "the prefix of a command in step 3",
	}))
}

// typeRelease types the page about the files of a release.
func (r *realCluster) typeRelease(t *testing.T) {
	dir := os.Getenv(releaseEnv)
	if dir == "" {
		t.Skip("there is no release: make cluster-test makes one of a commit")
	}
	typePage(t, &pages.Walk{
		Page: readPage(t, releasePage), Treatments: releaseTreatments, Names: namesOf(r), Shell: pages.NewShell(t, dir, r.forScripts(t)),
	})
}
