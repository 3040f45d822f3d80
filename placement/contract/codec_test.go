package contract_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

var update = flag.Bool("update", false, "write the golden files")

func reference(uid string) contract.Reference {
	return contract.Reference{UID: types.UID(uid), APIVersion: "example.com/v1", Kind: "Queue", Namespace: "shop", Name: "orders-" + uid}
}

func sample() contract.Contract {
	return contract.Contract{Incarnation: "41f0/7c1e09b2", Generation: 43, Entries: []contract.Entry{
		{Reference: reference("u1"), Generation: 7, Decision: 17, Changed: 43, Of: 12, Replicas: map[int32]int64{3: 17, 7: 12, 10: 9}, Payload: json.RawMessage(`{"stream":"a<b"}`)},
		{Reference: reference("u2"), Generation: 1, Decision: 18, Changed: 40, Of: 1},
	}}
}

// golden compares a text with a golden file.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	file = "testdata/" + file
	if *update {
		require.NoError(t, os.WriteFile(file, append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got)+"\n")
}

func TestContractIsStoredLikeThis(t *testing.T) {
	t.Parallel()
	c := sample()
	golden(t, "contract.json", c.Encode())
	assert.Equal(t, "c7831e34ca77ee80", contract.Digest(c.Encode()))
	back, err := contract.DecodeContract(c.Encode())
	require.NoError(t, err)
	c.Entries[1].Replicas = map[int32]int64{}
	assert.Equal(t, c, back)
	empty := contract.Contract{}
	golden(t, "empty.json", empty.Encode())
}

func TestAckIsStoredLikeThis(t *testing.T) {
	t.Parallel()
	a := contract.Ack{
		Incarnation: "41f0/7c1e09b2", Generation: 43, Digest: "9b7c03fd51a2c4e8",
		Stopping: map[types.UID]schedule.Set{"u2": {0}, "u1": {4, 5}}, Failing: map[types.UID]string{"u3": `dial tcp: "refused"`},
	}
	golden(t, "ack.json", a.Encode())
	back, err := contract.DecodeAck(a.Encode())
	require.NoError(t, err)
	assert.Equal(t, a, back)
	a.Stopping, a.Failing = nil, nil
	golden(t, "ack-done.json", a.Encode())
}

func TestTheOrderOfEntriesDoesNotMatter(t *testing.T) {
	t.Parallel()
	c, other := sample(), sample()
	other.Entries[0], other.Entries[1] = other.Entries[1], other.Entries[0]
	assert.Equal(t, c.Encode(), other.Encode())
	assert.Equal(t, types.UID("u2"), other.Entries[0].UID, "an argument has changed")
}

func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	const text = `{"incarnation":"i","generation":1,"entries":[{"uid":"u","apiVersion":"v1","kind":"K","namespace":"n","name":"m","generation":1,` +
		`"decision":1,"changed":1,"of":1,"replicas":{"0":1},"payload":null,"Of":[1.10],"z":{"a":12345678901234567890}}],"x":"y","zz":1e400}`
	c, err := contract.DecodeContract([]byte(text))
	require.NoError(t, err)
	assert.True(t, text == string(c.Encode()), "%s", c.Encode()) //nolint:testifylint // each byte counts
	assert.Equal(t, int32(1), c.Entries[0].Of, "names are case-sensitive")

	const ack = `{"incarnation":"i","generation":1,"digest":"d","a":[1, 2]}`
	a, err := contract.DecodeAck([]byte(ack))
	require.NoError(t, err)
	const compact = `{"incarnation":"i","generation":1,"digest":"d","a":[1,2]}`
	assert.True(t, compact == string(a.Encode()), "%s", a.Encode()) //nolint:testifylint // each byte counts
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{", "null", "[]", `{"generation":"1"}`, `{"generation":-1}`, `{"entries":[{}]}`, `{"entries":[null]}`, `{"entries":[{"uid":"u"},{"uid":"u"}]}`,
		`{"entries":[{"uid":"u","replicas":{"x":1}}]}`, `{"entries":[{"uid":"u","replicas":{"-1":1}}]}`, `{"entries":[{"uid":"u","replicas":{"01":1}}]}`, `{}{}`,
		`{"generation":9007199254740992}`, `{"entries":[{"uid":"u","decision":9007199254740992}]}`, `{"entries":[{"uid":"u","changed":-1}]}`,
		`{"entries":[{"uid":"u","replicas":{"0":9223372036854775807}}]}`,
	} {
		_, err := contract.DecodeContract([]byte(text))
		require.ErrorIs(t, err, contract.ErrMalformed, text)
	}
	for _, text := range []string{"{", "null", `{"generation":"1"}`, `{"stopping":{"u":[-1]}}`, `{"stopping":{"u":["a"]}}`, `{"failing":[]}`, `{"generation":9223372036854775807}`, `{"generation":-1}`} {
		_, err := contract.DecodeAck([]byte(text))
		require.ErrorIs(t, err, contract.ErrMalformed, text)
	}
	c, err := contract.DecodeContract(nil)
	require.NoError(t, err)
	assert.Equal(t, contract.Contract{}, c)
	a, err := contract.DecodeAck(nil)
	require.NoError(t, err)
	assert.Equal(t, contract.Ack{}, a)
}

func FuzzContract(f *testing.F) {
	c := sample()
	f.Add(string(c.Encode()))
	f.Add(`{"entries":[{"uid":"u","x":1}],"incarnation":"\ud800","\ud800":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := contract.DecodeContract([]byte(text))
		if err != nil {
			require.ErrorIs(t, err, contract.ErrMalformed)
			return
		}
		once := c.Encode()
		again, err := contract.DecodeContract(once)
		require.NoError(t, err, string(once))
		require.Equal(t, string(once), string(again.Encode()))
	})
}

func FuzzAck(f *testing.F) {
	f.Add(`{"incarnation":"i","generation":43,"digest":"9b","stopping":{"0b":[4]},"failing":{"77":"refused"}}`)
	f.Add(`{"stopping":{"\ud800":[2,1,1],"a":[]},"failing":{"*":""},"x":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := contract.DecodeAck([]byte(text))
		if err != nil {
			require.ErrorIs(t, err, contract.ErrMalformed)
			return
		}
		once := a.Encode()
		again, err := contract.DecodeAck(once)
		require.NoError(t, err, string(once))
		require.Equal(t, string(once), string(again.Encode()))
	})
}
