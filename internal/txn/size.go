package txn

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxDataBytes is the maximum total size in bytes of the values of a ConfigMap's data, see
// [DataBytes]: 1 MiB (MaxSecretSize in k8s.io/kubernetes/pkg/apis/core, the same for ConfigMaps).
const MaxDataBytes = 1 << 20

// DataBytes returns the total size in bytes of the values of data. Like the API server's limit, it
// does not count the keys (ValidateConfigMap in k8s.io/kubernetes/pkg/apis/core/validation).
func DataBytes(data map[string]string) int {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	return size
}

// TooLarge reports whether the API server or etcd rejected an object because of its size: the API
// server's limit of a request body (3 MiB: 413 RequestEntityTooLarge), the limit of a ConfigMap's
// values (422 Invalid), or etcd's --max-request-bytes (1.5 MiB by default) and the message size of
// the API server's own etcd client (2 MiB). The last two are returned as a 500 without a reason,
// only a text, after the API server has retried once without the managedFields.
func TooLarge(err error) bool {
	if err == nil {
		return false
	}
	return apierrors.IsRequestEntityTooLargeError(err) ||
		apierrors.HasStatusCause(err, metav1.CauseType("FieldValueTooLong")) ||
		strings.Contains(err.Error(), "etcdserver: request is too large") ||
		strings.Contains(err.Error(), "trying to send message larger than max")
}
