package simulation

import "iter"

// party is a participant that takes turns. A crash ends its current life.
type party interface {
	next()
	crash()
	end()
}

var (
	_ party = (*coroutine)(nil)
	_ party = stateless(nil)
)

// stateless is a party without state between turns.
type stateless func()

func (f stateless) next()  { f() }
func (f stateless) crash() {}
func (f stateless) end()   {}

// coroutine runs an actor from one pause to the next. It is reused for many runs, since starting
// one is more expensive than a run.
type coroutine struct {
	step func() (struct{}, bool)
	stop func()

	isEnding bool // the current life must end
	isNew    bool // the current life has not begun yet
}

// ended is the panic value that ends a life immediately.
type ended struct{}

// newCoroutine returns the coroutine of an actor with consecutive lives. It is positioned before
// the first life.
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

// live runs one life and recovers from its end.
func (c *coroutine) live(life func()) {
	defer func() {
		if r := recover(); r != nil && r != (ended{}) {
			panic(r)
		}
	}()
	life()
}

// next runs the actor to its next pause.
func (c *coroutine) next() { c.step() }

// end stops the coroutine permanently.
func (c *coroutine) end() { c.stop() }

// crash ends the current life. The coroutine is then positioned before the next one.
func (c *coroutine) crash() {
	if c.isNew {
		return
	}
	c.isEnding = true
	c.next()
}
