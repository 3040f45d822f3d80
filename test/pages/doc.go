// Package pages reads the commands that the pages of this repository have people type, types them,
// and compares what comes with what the pages show.
//
// [Commands] and [Parse] read a page. A [Shell] takes commands one after the other, as a terminal
// does, and nothing that it starts outlives the process that opened it. [Treatments] define how
// each command of a page is typed, so that a new command of the page is a failure. A [Walk] types
// them all.
//
// It knows just enough of Markdown and of shells for that. A block of code is between two lines of
// ```. If it has prompts ($), the other lines are what the commands print; else each line is a
// command. A command may go on behind a backslash and have a here-document. A loop is one command; if
// its first line ends with "do", it goes on to the line that begins with "done".
package pages
