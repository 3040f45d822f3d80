package simulation

import "iter"

// party has turns. A crash ends its present life.
type party interface {
	next()
	crash()
	end()
}

var (
	_ party = (*coroutine)(nil)
	_ party = stateless(nil)
)

// stateless is a party that remembers nothing from one turn to the next.
type stateless func()

func (f stateless) next()  { f() }
func (f stateless) crash() {}
func (f stateless) end()   {}

// coroutine runs an actor between two pauses at a time. It is used for many runs, since one costs
// more than a run.
type coroutine struct {
	step func() (struct{}, bool)
	stop func()

	isEnding bool // the present life is to end
	isNew    bool // the present life has not begun yet
}

// ended is what a life panics with to end at once, wherever it is.
type ended struct{}

// newCoroutine returns the coroutine of an actor that lives over and over. It stands before the
// first life.
func newCoroutine(life func(pause func())) *coroutine {
	c := &coroutine{}
	c.step, c.stop = iter.Pull(func(yield func(struct{}) bool) {
		isOver := false
		pause := func() {
			isOver = !yield(struct{}{})
			if isOver || c.isEnding {
				panic(ended{})
			}
		}
		for !isOver {
			c.live(func() {
				c.isEnding, c.isNew = false, true
				pause()
				c.isNew = false
				life(pause)
			})
		}
	})
	c.next()
	return c
}

// live calls one life and swallows its end.
func (c *coroutine) live(life func()) {
	defer func() {
		if r := recover(); r != nil && r != (ended{}) {
			panic(r)
		}
	}()
	life()
}

// next lets the actor go on to its next pause.
func (c *coroutine) next() { c.step() }

// end stops the coroutine for good.
func (c *coroutine) end() { c.stop() }

// crash ends the present life and stands before the next one.
func (c *coroutine) crash() {
	if c.isNew {
		return
	}
	c.isEnding = true
	c.next()
}
