package apply_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

var byArgoCD = fieldmanagers.Of([]fieldmanagers.Owner{{Manager: "argocd-controller", Operation: "Apply", Keys: "rack"}})

// returnedTo is like [returned], with the owner of the saved label.
func returnedTo() (*cluster, txn.Transaction) {
	c := returned()
	c.node.Labels = set{"own": "x"}
	c.keep(record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("50"), Source: "a", Owners: byArgoCD})
	return c, event(txn.Added, "b", "100", set{"own": "x"})
}

func TestRestoreGivesLabelsBackOnceItIsNoted(t *testing.T) {
	c, added := returnedTo()
	c.mustApply(t, added)
	assert.Equal(t, []string{"relabel", "write", "give back"}, c.calls[len(c.calls)-3:])
	assert.Equal(t, byArgoCD, c.node.Owners)
	assert.Equal(t, byArgoCD, c.stored.Record.Owners, "the next restore gives them back, too")
}

// What an unnoted restore has set must not look like an edit: a later one may bring other values.
func TestNothingIsGivenBackUnlessTheRestoreIsNoted(t *testing.T) {
	c, added := returnedTo()
	c.before = func(call string) error {
		if call == "write" {
			return errors.New("the API server is gone")
		}
		return nil
	}
	_, err := c.apply(t, added)
	require.Error(t, err)
	assert.Equal(t, "r7", c.node.Labels["rack"])
	assert.Zero(t, c.count("give back"))
}

func TestInterruptedRestoreGivesLabelsBack(t *testing.T) {
	for _, call := range []string{"give back", "write"} {
		c, added := returnedTo()
		c.before = func(name string) error {
			if name == call {
				return errors.New("the processor dies")
			}
			return nil
		}
		_, err := c.apply(t, added)
		require.Error(t, err, call)
		c.before = nil
		c.mustApply(t, added)
		assert.Equal(t, byArgoCD, c.node.Owners, call)
		assert.Equal(t, byArgoCD, c.stored.Record.Owners, call)
	}
}

// What the API server refuses for reasons that hold up all transactions is given back afterwards.
func TestLabelsAreGivenBackAfterAnOverload(t *testing.T) {
	for name, overload := range map[string]error{
		"busy":          apierrors.NewTooManyRequests("later", 1),
		"shutting down": apierrors.NewServiceUnavailable("later"),
		"token expired": apierrors.NewUnauthorized("the token has expired"),
	} {
		c, added := returnedTo()
		c.before = func(call string) error {
			if call == "give back" && c.count(call) < 4 {
				return overload
			}
			return nil
		}
		for range 3 {
			_, err := c.apply(t, added)
			require.ErrorIs(t, err, overload, name)
			assert.Equal(t, added.UID, c.stored.Record.Restored.UID, "the restore is noted meanwhile")
		}
		c.mustApply(t, added)
		assert.Equal(t, byArgoCD, c.node.Owners, name)
		assert.Empty(t, c.notGivenBack, name)
		assert.Equal(t, 1, c.count("relabel"), name)
	}
}

func TestRestoreIsNotedEvenIfNothingCanBeGivenBack(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("managedFields are guarded"))
	for name, err := range map[string]error{"refused": forbidden, "the node keeps changing": nodes.ErrStale, "a webhook is down": apierrors.NewInternalError(errors.New("failed calling webhook")), "a webhook is slow": apierrors.NewTimeoutError("the request did not complete", 1), "unreadable": fieldmanagers.ErrUnreadable} {
		c, added := returnedTo()
		c.before = func(call string) error {
			if call == "give back" {
				return err
			}
			return nil
		}
		c.mustApply(t, added)
		assert.Equal(t, "r7", c.node.Labels["rack"], name)
		assert.Equal(t, added.UID, c.stored.Record.Restored.UID, name)
		assert.Equal(t, 1, c.count("give back"), name)
		assert.Equal(t, 1, len(c.stale)+len(c.notGivenBack), name)
	}
}

// The next attempt has nothing left to save, so it would not report that.
func TestSaveIsReportedEvenIfLabelsAreGivenBackLater(t *testing.T) {
	c := returned()
	c.now, c.node.UID, c.node.Revision = "40", "a", revision.MustParse("35")
	c.node.Labels = set{"rack": "r7"}
	c.keep(record.Record{Node: "node-1", Labels: set{"rack": "r7"}, Revision: revision.MustParse("50"), Source: "a", Owners: byArgoCD})
	c.before = func(call string) error {
		if call == "give back" && c.count(call) == 1 {
			return apierrors.NewTooManyRequests("later", 1)
		}
		return nil
	}
	updated := event(txn.Updated, "a", "30", set{"rack": "r7"})
	settled, err := c.apply(t, updated)
	require.Error(t, err)
	assert.Zero(t, settled, "the transaction is kept for the next attempt")
	assert.Equal(t, []string{"30"}, c.renewed)
	c.before = nil
	c.mustApply(t, updated)
	assert.Equal(t, 2, c.count("give back"))
	assert.Equal(t, []string{"30"}, c.renewed)
}
