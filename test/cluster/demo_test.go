package cluster_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
)

const demoPage = "docs/tutorials/demo-image.md"

// demoTreatments run the container of the page in a pod, with a share of the CPU like that of a
// container of Docker. No terminal waits for a pod, so the walk waits until the demo has shown
// everything.
var demoTreatments = pages.Treatments{
	{Prefix: "docker load --input ", Instead: `"$CLUSTER_SCRIPTS/load-image.sh" `, Kind: pages.Build, Why: "the image store of the nodes"},
	{
		Prefix: "docker run --init --rm --name nodekeeper-demo --network host nodekeeper-demo:dev -keep",
		Instead: `kubectl apply -f - <<EOF
apiVersion: v1
kind: Pod
metadata: {name: nodekeeper-demo, namespace: default}
spec:
  restartPolicy: Never
  containers:
  - {name: demo, image: "nodekeeper-demo:dev", imagePullPolicy: IfNotPresent, args: [-keep], resources: {requests: {cpu: "1"}}}
EOF
until kubectl logs nodekeeper-demo 2>/dev/null | grep -q "^  kubectl nodekeeper ui$"; do
  [ "$(kubectl get pod nodekeeper-demo -o jsonpath={.status.phase})" != Failed ] || break
  sleep 1
done
kubectl logs nodekeeper-demo | grep -q "^  kubectl nodekeeper ui$"`,
		Why: "a pod, without Docker",
	},
	{Prefix: "docker exec -i nodekeeper-demo kubectl get ", Instead: "kubectl exec -i nodekeeper-demo -- kubectl get ", Kind: pages.Look, Why: "the same in a pod"},
	{Prefix: "docker exec -i nodekeeper-demo kubectl nodekeeper ", Instead: "kubectl exec -i nodekeeper-demo -- kubectl nodekeeper ", Kind: pages.Look, Why: "the same in a pod"},
	{Prefix: "docker exec -i nodekeeper-demo ", Instead: "kubectl exec -i nodekeeper-demo -- ", Why: "the same in a pod"},
	{
		Prefix:  `echo '{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker-2"}}' | docker exec -i nodekeeper-demo `,
		Instead: `echo '{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker-2"}}' | kubectl exec -i nodekeeper-demo -- `, Why: "the same in a pod",
	},
}

func TestEveryCommandOfTheDemoImageIsKnown(t *testing.T) {
	assert.Empty(t, demoTreatments.Check(readPage(t, demoPage), map[string]string{
		"docker exec -it nodekeeper-demo kubectl nodekeeper ui": "TestKeepShowsHowToLookAround does, on this machine",
	}))
}

// TestDemoImage types the page about the image of the demo.
func TestDemoImage(t *testing.T) {
	r := connect(t)
	defer func() {
		if t.Failed() {
			show(t, "logs", "nodekeeper-demo")
		}
		r.kubectl(t, "delete", "pod", "nodekeeper-demo", "--ignore-not-found", "--now")
	}()
	root, err := repository.Root()
	require.NoError(t, err)
	typePage(t, &pages.Walk{
		Page: readPage(t, demoPage), Treatments: demoTreatments,
		Shell: pages.NewShell(t, filepath.Join(root, "bin", "images", "demo"), r.forScripts(t)),
	})
}
