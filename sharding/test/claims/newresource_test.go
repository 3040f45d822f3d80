package claims

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// The API server looks up the schema of an object before it runs a mutating policy. It has a list
// of the schemas of all group versions, which it fetches from its own OpenAPI documents at startup
// and every five seconds after that. Regardless of the failure policy, a request fails with 503 if
// its group version is not in the list and it meets all conditions of a policy.

// Outcomes of requests that match the policies of these tests.
const (
	marked      = "admitted with the mark"
	unmarked    = "admitted without the mark"
	unavailable = "503"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

const (
	// listPeriod is the interval at which the list is fetched.
	listPeriod = 5 * time.Second
	// attempts bounds the number of attempts at a step that must complete before the next fetch.
	attempts = 10
)

// inTime asserts the outcomes of requests that are answered before the next list is fetched. It
// retries if the machine was too slow for that. try returns a time after which the last list was
// fetched.
func inTime(t *testing.T, want []string, try func(n int) (got []string, fetched time.Time)) {
	t.Helper()
	for n := range attempts {
		got, fetched := try(n)
		if slices.Equal(want, got) {
			return
		}
		require.GreaterOrEqual(t, time.Since(fetched), listPeriod, "want %q, got %q", want, got)
	}
	require.Fail(t, "the machine is too slow", "%q", want)
}

// TestPolicyMakesNewCustomResourceUnavailable covers R17: creates of a new custom resource fail if
// a mutating policy lists it before the API server has fetched the next list, and succeed if the
// policy lists it later.
func TestPolicyMakesNewCustomResourceUnavailable(t *testing.T) {
	t.Parallel()
	s := newSites(t, api.Config)
	waited := s.kind("waited", "Site")
	elsewhere := &sites{client: s.client, namespace: controlplane.Namespace(t, s.client)}
	named := []schema.GroupVersionKind{configMap}
	for n := range 3 * attempts {
		named = append(named, s.nth("early", n), s.nth("tick", n))
	}
	policy := s.mark(t, "", markByPatch, named...)
	ticks := 0
	// fetches returns when a list was fetched.
	fetches := func() (after time.Time) {
		tick := s.nth("tick", ticks)
		ticks++
		s.define(t, tick)
		return s.eventually(t, tick, unavailable)
	}

	s.define(t, waited)
	s.listed(t, waited, true)
	var early, late schema.GroupVersionKind
	var earlyCRD *unstructured.Unstructured
	inTime(t, []string{unavailable, unmarked, unavailable}, func(n int) ([]string, time.Time) {
		fetched := fetches() // after waited was in the list
		early, late = s.nth("early", n), s.nth("late", n)
		earlyCRD = s.define(t, early)
		s.define(t, late)
		got := []string{s.ask(t, early), s.ask(t, late)} // early was in the policy before it was defined; late is not in the policy yet
		assert.Equal(t, unmarked, elsewhere.ask(t, early), "named, but the match condition is not met")
		s.name(t, policy, late)
		return append(got, s.next(t, late, unmarked)), fetched
	})
	s.name(t, policy, waited)
	s.eventually(t, waited, unmarked)
	s.eventually(t, early, unavailable)
	s.eventually(t, late, unavailable)

	// A definition that is recreated before the next list is fetched is not missed.
	inTime(t, []string{marked}, func(int) ([]string, time.Time) {
		s.eventually(t, early, unavailable)
		fetched := fetches()
		earlyCRD = s.redefine(t, earlyCRD, early)
		return []string{s.ask(t, early)}, fetched
	})

	// A definition that is missed is unavailable again.
	inTime(t, []string{unavailable}, func(int) ([]string, time.Time) {
		require.NoError(t, s.client.Delete(t.Context(), earlyCRD))
		s.listed(t, early, false)
		fetched := fetches() // without early
		earlyCRD = s.define(t, early)
		return []string{s.ask(t, early)}, fetched
	})
}

// TestRestartMakesCustomResourcesUnavailable covers the limit of R17: a restarted API server is
// ready before it has fetched a list with custom resources, however long they have been defined.
func TestRestartMakesCustomResourcesUnavailable(t *testing.T) {
	t.Parallel()
	own, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, own.Stop()) })
	s := newSites(t, own.Config)
	site := s.kind("old", "Site")
	s.mark(t, "", markByPatch, configMap, site)
	s.define(t, site)
	s.eventually(t, site, unavailable)

	var refused error
	var ready time.Time
	for n := 0; n < attempts && refused == nil; n++ { // A slow machine can need the five seconds to become ready.
		require.NoError(t, own.RestartAPIServer())
		ready = time.Now()
		refused = s.client.Create(t.Context(), newObject(site, s.namespace, "probe"), client.DryRunAll)
	}
	assert.True(t, apierrors.IsServiceUnavailable(refused), "%v", refused)
	s.eventually(t, site, unavailable)
	t.Logf("available %s after the API server was ready", time.Since(ready))
}

// A policy with an apply configuration requires the schema of the object. While the API server has
// an outdated schema, the policy is skipped, with failure policy Ignore, for objects that have a
// new field or are of a new kind of a known group version. A policy with a JSON patch is not
// skipped.
func TestPolicyByPatchNeedsNoNewSchema(t *testing.T) {
	t.Parallel()
	s := newSites(t, api.Config)
	patched, patchedPage := s.kind("patched", "Site"), s.kind("patched", "Page")
	pageOf := func(site schema.GroupVersionKind) schema.GroupVersionKind {
		return site.GroupVersion().WithKind("Page")
	}
	var all []schema.GroupVersionKind
	for n := range attempts {
		all = append(all, s.nth("applied", n), pageOf(s.nth("applied", n)))
	}
	s.mark(t, "-apply", applying("Object{metadata: Object.metadata{labels: {'marked': ''}}}"), all...)
	s.mark(t, "-patch", markByPatch, configMap, patched, patchedPage)
	s.define(t, patched)
	s.eventually(t, patched, unavailable)

	var applied schema.GroupVersionKind
	inTime(t, []string{unmarked, unmarked}, func(n int) ([]string, time.Time) {
		applied = s.nth("applied", n)
		s.define(t, applied)
		fetched := s.eventually(t, applied, unavailable)
		s.define(t, pageOf(applied))
		got := []string{s.ask(t, pageOf(applied))}
		s.addField(t, applied)
		return append(got, s.ask(t, applied, "field")), fetched
	})
	assert.Equal(t, marked, s.ask(t, applied), "without the new field")

	s.define(t, patchedPage)
	assert.Equal(t, marked, s.ask(t, patchedPage))
	s.addField(t, patched)
	assert.Equal(t, marked, s.ask(t, patched, "field"))

	s.eventually(t, pageOf(applied), unmarked)
}

// TestValidatingPolicyNeedsNoSchema covers the fence: it applies to a new custom resource at once.
func TestValidatingPolicyNeedsNoSchema(t *testing.T) {
	t.Parallel()
	s := newSites(t, api.Config)
	site := s.kind("validated", "Site")
	createForTest(t, s.client, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    new(admissionregistrationv1.Ignore),
			MatchConstraints: s.named(configMap, site),
			Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "refused by this test"}},
		},
	})
	createForTest(t, s.client, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": s.namespace},
			}},
		},
	})
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		_, err := s.try(ctx, configMap)
		assert.ErrorContains(collect, err, "refused by this test")
	}, patience, period, "the policy is in force")
	s.define(t, site)
	_, err := s.try(ctx, site)
	assert.ErrorContains(t, err, "refused by this test")
}

// markByPatch is the mutation that most of these tests use.
var markByPatch = patching("[JSONPatch{op: 'add', path: '/metadata/labels', value: {'marked': ''}}]")

// sites requests creates of objects that policies list.
type sites struct {
	client    client.Client
	openapi   *kubernetes.Clientset
	namespace string
}

func newSites(t *testing.T, config *rest.Config) *sites {
	t.Helper()
	controlplane.NeedMutatingPolicies(t, api.Kubeconfig)
	clientset, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	c := clientOf(t, config)
	return &sites{client: c, openapi: clientset, namespace: controlplane.Namespace(t, c)}
}

// kind returns an undefined kind of a group that no other test uses.
func (s *sites) kind(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group + "." + s.namespace + ".nodekeeper.dev", Version: "v1", Kind: kind}
}

// nth returns one of many such kinds.
func (s *sites) nth(group string, n int) schema.GroupVersionKind {
	return s.kind(fmt.Sprintf("%s-%d", group, n), "Site")
}

// mark creates a policy for new objects of some kinds in the namespace. If the policy includes
// ConfigMaps, which always exist, mark waits until the policy is in force.
func (s *sites) mark(t *testing.T, suffix string, mutations []admissionregistrationv1.Mutation, kinds ...schema.GroupVersionKind) *admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	policy := install(t, s.client, s.namespace+suffix, "", admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: s.named(kinds...),
		MatchConditions:  []admissionregistrationv1.MatchCondition{inNamespace(s.namespace)},
		Mutations:        mutations,
	})
	if kinds[0] == configMap {
		ctx := t.Context()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			outcome, err := s.try(ctx, configMap)
			require.NoError(collect, err)
			assert.Equal(collect, marked, outcome)
		}, patience, period, "the policy is in force")
	}
	return policy
}

func (s *sites) named(kinds ...schema.GroupVersionKind) *admissionregistrationv1.MatchResources {
	matches := &admissionregistrationv1.MatchResources{}
	for _, kind := range kinds {
		matches.ResourceRules = append(matches.ResourceRules, rule(kind.Group, []string{strings.ToLower(kind.Kind) + "s"}, admissionregistrationv1.Create))
	}
	return matches
}

// name adds a kind to the kinds of a policy.
func (s *sites) name(t *testing.T, policy *admissionregistrationv1.MutatingAdmissionPolicy, kind schema.GroupVersionKind) {
	t.Helper()
	policy.Spec.MatchConstraints.ResourceRules = append(policy.Spec.MatchConstraints.ResourceRules, s.named(kind).ResourceRules...)
	require.NoError(t, s.client.Update(t.Context(), policy))
}

func (s *sites) define(t *testing.T, kind schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	return define(t, s.client, kind, "Namespaced", nil)
}

// redefine deletes a definition and recreates it once the API server serves it no longer: until
// then, it refuses objects of the next definition, too.
func (s *sites) redefine(t *testing.T, crd *unstructured.Unstructured, kind schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.client.Delete(ctx, crd))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.True(collect, apierrors.IsNotFound(s.client.Get(ctx, client.ObjectKeyFromObject(crd), crd.DeepCopy())))
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		err := s.client.List(ctx, list)
		assert.True(collect, meta.IsNoMatchError(err) || apierrors.IsNotFound(err), "%v", err)
	}, patience, period, "the definition is gone")
	return s.define(t, kind)
}

// addField adds a string to the schema of a kind and waits until the API server stores it.
func (s *sites) addField(t *testing.T, kind schema.GroupVersionKind) {
	t.Helper()
	ctx := t.Context()
	next := newCRD(kind, "Namespaced", map[string]any{"field": map[string]any{"type": "string"}})
	require.NoError(t, s.client.Patch(ctx, next, client.Merge))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		object := newObject(kind, s.namespace, "probe")
		object.Object["field"] = "set"
		require.NoError(collect, s.client.Create(ctx, object, client.DryRunAll))
		assert.Equal(collect, "set", object.Object["field"])
	}, patience, period, "the API server stores the field")
}

// listed waits until the API server's OpenAPI documents contain the group version of a kind, or no
// longer contain it.
func (s *sites) listed(t *testing.T, kind schema.GroupVersionKind, want bool) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		paths, err := s.openapi.Discovery().OpenAPIV3().Paths()
		require.NoError(collect, err)
		_, got := paths["apis/"+kind.GroupVersion().String()]
		assert.Equal(collect, want, got)
	}, patience, period, "OpenAPI lists %s: %t", kind, want)
}

// try requests a create and returns its outcome. It uses apply, because the API server delays a
// POST in the first two seconds of a custom resource, with the same result.
func (s *sites) try(ctx context.Context, kind schema.GroupVersionKind, fields ...string) (outcome string, err error) {
	object := newObject(kind, s.namespace, "probe")
	for _, field := range fields {
		object.Object[field] = "set"
	}
	err = s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.DryRunAll, client.FieldOwner("test"))
	switch _, has := object.GetLabels()["marked"]; {
	case apierrors.IsServiceUnavailable(err) && strings.Contains(err.Error(), "There can be a delay between when CustomResourceDefinitions are created and when they are available"):
		return unavailable, nil
	case err != nil:
		return "", err
	case has:
		return marked, nil
	default:
		return unmarked, nil
	}
}

func (s *sites) ask(t *testing.T, kind schema.GroupVersionKind, fields ...string) string {
	t.Helper()
	outcome, err := s.try(t.Context(), kind, fields...)
	require.NoError(t, err)
	return outcome
}

// eventually waits until a kind is marked. Until then, every outcome must be meanwhile, and
// ConfigMaps, which the same policy lists, must always be marked. It returns the time of the last
// request without the mark, or zero if the first response had it.
func (s *sites) eventually(t *testing.T, kind schema.GroupVersionKind, meanwhile string) (before time.Time) {
	t.Helper()
	ctx := t.Context()
	seen := map[string]int{}
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		asked := time.Now()
		outcome, err := s.try(ctx, kind)
		require.NoError(collect, err)
		seen[outcome]++
		if outcome != marked {
			before = asked
		}
		other, err := s.try(ctx, configMap)
		require.NoError(collect, err)
		seen["of a ConfigMap: "+other]++
		assert.Equal(collect, marked, outcome)
	}, patience, period, "%s is marked", kind)
	allowed := []string{marked, meanwhile, "of a ConfigMap: " + marked}
	assert.Subset(t, allowed, slices.Collect(maps.Keys(seen)), "of %s", kind)
	return before
}

// next waits for a different outcome and returns it.
func (s *sites) next(t *testing.T, kind schema.GroupVersionKind, last string) (outcome string) {
	t.Helper()
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var err error
		outcome, err = s.try(ctx, kind)
		require.NoError(collect, err)
		assert.NotEqual(collect, last, outcome)
	}, patience, period, "%s: not %s", kind, last)
	return outcome
}
