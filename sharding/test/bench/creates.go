package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

// block is the number of requests of one kind in a row. The CPU time of a process has a resolution
// of ten milliseconds.
const block = 100

// timed is a kind of create to measure.
type timed struct{ what, namespace string }

// creates are what the creates of one kind took.
type creates struct {
	took []time.Duration
	// medians are the medians of each block, and cpu is the CPU time of the API server for each create
	// of it.
	medians, cpu []time.Duration
}

// time creates Secrets sequentially, in short blocks that alternate between the kinds, so that other
// load on the machine affects all of them equally. It prints the durations and the CPU time of the
// API server, and what each kind takes in addition to the first one.
func (b *bench) time(ctx context.Context, all ...timed) error {
	results := make([]creates, len(all))
	for n := range b.creates / block {
		for k, one := range all {
			if err := b.timeBlock(ctx, one, n, &results[k]); err != nil {
				return err
			}
		}
	}
	for k, one := range all {
		if len(results[k].took) > 0 {
			b.printCreates(one, results[k], results[0])
		}
		if err := b.client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(one.namespace)); err != nil {
			return err
		}
	}
	return nil
}

// timeBlock creates the Secrets of the n-th block of a kind.
func (b *bench) timeBlock(ctx context.Context, one timed, n int, result *creates) error {
	took, cpu, err := b.measureBlock(n, func(i int) error {
		return b.client.Create(ctx, secret(one.namespace, fmt.Sprintf("%s-%d", one.what, i)))
	})
	if err != nil {
		return err
	}
	result.took = append(result.took, took...)
	result.medians = append(result.medians, quantile(took, 0.5))
	result.cpu = append(result.cpu, cpu/block)
	return nil
}

// measureBlock makes the requests of the n-th block one after the other. It returns how long
// each took, and the CPU time of the API server for all of them.
func (b *bench) measureBlock(n int, request func(i int) error) (took []time.Duration, cpu time.Duration, err error) {
	before, err := b.apiServerCPU()
	if err != nil {
		return nil, 0, err
	}
	for i := range block {
		begin := time.Now()
		if err := request(n*block + i); err != nil {
			return nil, 0, err
		}
		took = append(took, time.Since(begin))
	}
	after, err := b.apiServerCPU()
	return took, after - before, err
}

// printCreates prints what creates of one kind took, and what they took in addition to another kind.
// All but the quantiles are medians over the blocks, so that a burst of other load does not affect
// them.
func (b *bench) printCreates(one timed, c, other creates) {
	b.printResult("create of a Secret, "+one.what+", p50, p90 and p99, ms; CPU of the API server, ms; added p50 and CPU, ms",
		"%.2f, %.2f, %.2f; %.2f; %.2f, %.2f", ms(quantile(c.took, 0.5)), ms(quantile(c.took, 0.9)), ms(quantile(c.took, 0.99)),
		ms(quantile(c.cpu, 0.5)), ms(added(c.medians, other.medians)), ms(added(c.cpu, other.cpu)))
}

// added returns the median of differences.
func added(to, from []time.Duration) time.Duration {
	more := make([]time.Duration, len(to))
	for i := range to {
		more[i] = to[i] - from[i]
	}
	return quantile(more, 0.5)
}

// quantile returns a quantile of durations, without changing their order.
func quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[int(float64(len(all))*q)]
}

// apiServerCPU returns the CPU time of the API server so far.
func (b *bench) apiServerCPU() (time.Duration, error) {
	pid, err := b.plane.PID(controlplane.APIServer)
	if err != nil {
		return 0, err
	}
	usage, err := programs.UsageOf(pid)
	return usage.CPU, err
}

// label installs a policy that adds a constant label to each Secret in a namespace, and waits until
// the API server applies it. No policy that changes an object costs less.
func (b *bench) label(ctx context.Context) error {
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: labelled}}
	policy.Spec = admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: labelled}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}},
			}}},
		},
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'shard': 'web-0'}}]"},
		}},
		FailurePolicy:      new(admissionregistrationv1.Ignore),
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: labelled}}
	binding.Spec.PolicyName = policy.Name
	for _, o := range []client.Object{policy, binding} {
		if err := b.client.Create(ctx, o); err != nil {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		s := secret(labelled, "probe")
		err := b.client.Create(ctx, s, client.DryRunAll)
		return len(s.Labels) > 0, err
	})
}
