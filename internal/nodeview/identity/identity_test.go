package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/nodeview/identity"
)

func id(provider, system string) identity.Identity {
	return identity.Identity{ProviderID: provider, SystemUUID: system}
}

func TestOneEqualFieldIsEnough(t *testing.T) {
	for name, tc := range map[string]struct {
		saved, reported identity.Identity
		want            identity.Verdict
	}{
		"both equal":                 {id("p", "s"), id("p", "s"), identity.Same},
		"another firmware":           {id("p", "s"), id("p", "t"), identity.Same},
		"another provider ID":        {id("p", "s"), id("q", "s"), identity.Same},
		"one kind each, equal":       {id("", "s"), id("p", "s"), identity.Same},
		"one is no longer reported":  {id("p", "s"), id("", "s"), identity.Same},
		"one kind, not equal":        {id("p", ""), id("q", "s"), identity.Other},
		"one is not reported yet":    {id("p", "s"), id("", "t"), identity.Undecided},
		"the other is not":           {id("p", "s"), id("q", ""), identity.Undecided},
		"neither equal":              {id("p", "s"), id("q", "t"), identity.Other},
		"nothing of one kind":        {id("p", ""), id("", "s"), identity.Undecided},
		"nothing reported":           {id("p", "s"), id("", ""), identity.Undecided},
		"nothing reported by either": {id("", ""), id("", ""), identity.Undecided},
	} {
		assert.Equal(t, tc.want, identity.Compare(tc.saved, tc.reported), name)
	}
}

func TestFilledKeepsEarlierFields(t *testing.T) {
	assert.Equal(t, id("p", "t"), id("", "t").Filled(id("p", "s")))
	assert.True(t, id("p", "s").IsComplete())
	assert.False(t, id("p", "").IsComplete())
}

func TestIdentitySettles(t *testing.T) {
	created := time.Unix(1e9, 0)
	for age, want := range map[time.Duration]bool{-time.Hour: false, 0: false, 9 * time.Minute: false, 10 * time.Minute: true, time.Hour: true} {
		assert.Equal(t, want, identity.Settled(created, created.Add(age)), age)
	}
	assert.False(t, identity.Settled(time.Time{}, created), "a Node that is being created")
}

func TestReportedValuesAreBoundedAndPrintable(t *testing.T) {
	n := &corev1.Node{}
	n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = strings.Repeat("x", identity.MaxBytes+1), "\x1b[2J"
	reported := identity.Of(n)
	assert.Equal(t, identity.Identity{SystemUUID: "\x1b[2J"}, reported)
	assert.Equal(t, `systemUUID "\x1b[2J"`, reported.String())
	assert.Equal(t, "providerID aws:///eu-central-1a/i-0d02aa4e", identity.Identity{ProviderID: "aws:///eu-central-1a/i-0d02aa4e"}.String())
}

func TestCaseOfUUIDIsIgnored(t *testing.T) {
	assert.Equal(t, identity.Same, identity.Compare(identity.Identity{SystemUUID: "EC2D02AA-1"}, identity.Identity{SystemUUID: "ec2d02aa-1"}))
	assert.Equal(t, identity.Other, identity.Compare(identity.Identity{ProviderID: "A"}, identity.Identity{ProviderID: "a"}))
}

// TestOrderOfBytesOfUUIDIsIgnored has the two forms of one UUID in the SMBIOS of virtual hardware.
func TestOrderOfBytesOfUUIDIsIgnored(t *testing.T) {
	const before, after = "422813f5-d420-7161-5db0-7b96440ccf54", "F5132842-20D4-6171-5DB0-7B96440CCF54"
	for other, want := range map[string]identity.Verdict{
		after: identity.Same, strings.ToLower(after): identity.Same, before: identity.Same,
		"f5132842-20d4-6171-5db0-7b96440ccf55": identity.Other, // another machine
		"f5132842-d420-7161-5db0-7b96440ccf54": identity.Other, // no order of any firmware
		"54cf0c44-967b-b05d-6171-20d4f5132842": identity.Other,
	} {
		assert.Equal(t, want, identity.Compare(id("", before), id("", other)), other)
		assert.Equal(t, want, identity.Compare(id("", other), id("", before)), other)
		assert.Equal(t, want == identity.Other, id("", before).Contradicts(id("", other)), other)
	}
	for _, odd := range []string{"----", "é2345678-1234-1234-1-1", "12345678-1234", "1"} {
		assert.Equal(t, identity.Other, identity.Compare(id("", odd), id("", before)), odd)
	}
}

func TestContradictsComparesOnlyCommonFields(t *testing.T) {
	assert.True(t, id("p", "s").Contradicts(id("", "t")))
	assert.False(t, id("p", "").Contradicts(id("", "t")))
	assert.False(t, id("p", "S").Contradicts(id("p", "s")))
}
