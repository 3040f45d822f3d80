package robustness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/placement/test/journal"
)

// at is a time in seconds.
func at(s float64) int64 { return int64(s * float64(time.Second)) }

// story is a history of the Queue u, which wants two virtual replicas from generation 1 on, and one
// from generation 2 on.
type story struct {
	spells    []*spell
	sightings []sighting
}

// works records that a program works on an index for a time.
func (s *story) works(index int32, from, to float64) {
	s.spells = append(s.spells, &spell{Entry: journal.Entry{NS: at(from), Name: "orders", Index: index, UID: "u"}, end: at(to)})
}

// shows records a state of the Queue. It is Ready for a generation, or for none.
func (s *story) shows(when float64, generation, readyFor int64) {
	s.sightings = append(s.sightings, sighting{
		at: at(when), name: "orders", uid: "u", generation: generation, wanted: int32(3 - generation), isReady: readyFor > 0, readyFor: readyFor,
	})
}

func TestReadyIsNotTrueForLongWithoutWork(t *testing.T) {
	t.Parallel()
	limit := readyLimit.Seconds()
	for name, tc := range map[string]struct {
		tell    func(*story)
		excused []interval
		broken  bool
	}{
		"all is worked on": {tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 100)
			s.shows(1, 1, 1)
		}},
		"one is not": {broken: true, tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.works(1, 11+limit, 100)
			s.shows(1, 1, 1)
		}},
		"not for long": {tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.works(1, 9+limit, 100)
			s.shows(1, 1, 1)
		}},
		"Ready was False meanwhile": {tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.works(1, 11+limit, 100)
			s.shows(1, 1, 1)
			s.shows(15, 1, 0)
			s.shows(16, 1, 1)
		}},
		"it was Ready all the time, whatever else changed": {broken: true, tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.shows(1, 1, 1)
			s.shows(15, 1, 1)
		}},
		"a controller had a fault": {excused: []interval{{at(12), at(20)}}, tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.works(1, 11+limit, 100)
			s.shows(1, 1, 1)
		}},
		"a fault that ended long ago excuses nothing": {broken: true, excused: []interval{{at(2), at(9)}}, tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.works(1, 11+limit, 100)
			s.shows(1, 1, 1)
		}},
		"the index is not wanted any longer": {tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.shows(1, 1, 1)
			s.shows(9, 2, 2)
		}},
		"it is Ready for the former generation only": {broken: true, tell: func(s *story) {
			s.works(0, 0, 100)
			s.works(1, 0, 10)
			s.shows(1, 1, 1)
			s.shows(9, 2, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &story{}
			tc.tell(s)
			err := checkReady(s.spells, s.sightings, tc.excused, at(100))
			if tc.broken {
				assert.ErrorIs(t, err, errBrokeReady)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}
