package pages_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
)

// book has one name on each page.
type book struct {
	client.Reader
	names []string
	asked []client.ListOptions
}

func (b *book) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	b.asked = append(b.asked, *o)
	at := 0
	if o.Continue != "" {
		var err error
		if at, err = strconv.Atoi(o.Continue); err != nil {
			return err
		}
	}
	cms, ok := list.(*corev1.ConfigMapList)
	if !ok {
		return errors.New("a book of ConfigMaps")
	}
	cms.Items = []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: b.names[at]}}}
	if at+1 < len(b.names) {
		cms.Continue = strconv.Itoa(at + 1)
	}
	return nil
}

func configMaps() client.ObjectList { return &corev1.ConfigMapList{} }

func TestEachReadsEveryPage(t *testing.T) {
	b := &book{names: []string{"a", "b", "c"}}
	var read []string
	require.NoError(t, pages.Each(t.Context(), b, configMaps, "ns", func(cm *corev1.ConfigMap) error {
		read = append(read, cm.Name)
		return nil
	}))
	assert.Equal(t, b.names, read)
	require.Len(t, b.asked, 3)
	for _, o := range b.asked {
		assert.Equal(t, "ns", o.Namespace)
		assert.Positive(t, o.Limit)
		assert.Empty(t, o.Raw.ResourceVersion, "what there is now, and not what a cache has")
	}
}

func TestEachEndsWithTheFirstError(t *testing.T) {
	// Use a book for each call, because the pager reads ahead, and may do so for a moment after the
	// end.
	one := func() *book { return &book{names: []string{"a", "b"}} }
	failed := errors.New("failed")
	require.ErrorIs(t, pages.Each(t.Context(), one(), configMaps, "", func(*corev1.ConfigMap) error { return failed }), failed)
	assert.ErrorContains(t, pages.Each(t.Context(), one(), configMaps, "", func(*corev1.Node) error { return nil }), "a list of *v1.Node holds a *v1.ConfigMap")
}
