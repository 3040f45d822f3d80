package manifests

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// Token returns a token of a service account.
func Token(t *testing.T, c client.Client, namespace, account string) string {
	t.Helper()
	return token(t, c, namespace, account, nil)
}

// token returns a token of a service account, which is valid as long as a pod exists if there is
// one.
func token(t *testing.T, c client.Client, namespace, account string, pod *authenticationv1.BoundObjectReference) string {
	t.Helper()
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: pod}}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	require.NoError(t, c.SubResource("token").Create(t.Context(), serviceAccount, token))
	return token.Status.Token
}

// Kubeconfig returns the path of a kubeconfig with a token of a service account.
func Kubeconfig(t *testing.T, c client.Client, plane *controlplane.ControlPlane, namespace, account string) string {
	t.Helper()
	return kubeconfig(t, plane, Token(t, c, namespace, account))
}

// PodKubeconfig returns the path of a kubeconfig with a token like that in a pod, which must exist.
func PodKubeconfig(t *testing.T, c client.Client, plane *controlplane.ControlPlane, pod *corev1.Pod) string {
	t.Helper()
	return kubeconfig(t, plane, token(t, c, pod.Namespace, pod.Spec.ServiceAccountName, &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
	}))
}

func kubeconfig(t *testing.T, plane *controlplane.ControlPlane, token string) string {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(plane.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, clientcmdapi.FlattenConfig(cfg))
	for name := range cfg.AuthInfos {
		cfg.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*cfg, path))
	return path
}
