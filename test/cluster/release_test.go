package cluster_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
)

const (
	releasePage = "docs/tutorials/install-a-release.md"
	// releaseEnv names the directory with the files of a release.
	releaseEnv = "CLUSTER_RELEASE"
)

var releaseTreatments = pages.Treatments{
	{Prefix: "minikube start --nodes=2 ", Instead: "kubectl wait --for=condition=Ready node/minikube node/minikube-m02 #", Why: "the cluster is up"},
	{Prefix: "minikube image load ", Instead: `"$CLUSTER_SCRIPTS/load-image.sh" `, Kind: pages.Build, Why: "the page: by what brings an image onto its nodes"},
	{Prefix: "minikube ssh --node=minikube-m02 -- sudo systemctl restart kubelet", Instead: `"$CLUSTER_SCRIPTS/node.sh" kubelet-restart minikube-m02 4>&-`, Why: "the page: by a way to restart a kubelet"},
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

func (r *realCluster) typeRelease(t *testing.T) {
	dir := os.Getenv(releaseEnv)
	if dir == "" {
		t.Skip("there is no release: make cluster-test makes one of a commit")
	}
	p := readPage(t, releasePage)
	promised, err := p.Promised(`It takes about (\w+) minutes`)
	require.NoError(t, err)
	walk := &pages.Walk{
		Page: p, Treatments: releaseTreatments, LookFor: lookAgainFor, Names: namesOf(r),
		Shell: pages.NewShell(t, dir, r.forScripts(t)),
	}
	took, err := walk.Type(t.Context(), t.Logf)
	require.NoError(t, err)
	assert.Less(t, took, promised, "the duration promised by the page")
}
