package simulation

// lateNote is a schedule in which a processor reads a Node whose restore is not noted, stands still until the next
// incarnation is restored and noted, and then goes on. It was found by changing schedules that come near to that; of random
// ones, less than one in a million gets there.
const lateNote = "" +
	"01000000000000001d00000017007f000000030000" + // the settings
	"1617005b7200000000650000bf1febebd1f5f0000000950e000000006f00004ee19b" +
	"3118595af800f50055efc5a9a8d60024002a0061000056a7b94700149000000000002a006f003dd8c2a892"
