// Package pages reads what the pages of this repository tell people to type: the commands, and what
// the pages show that they print. Tests compare it with what there is, or run it.
//
// It knows just enough of Markdown and of shells for that. A block of code is between two lines of
// ```. If it has prompts ($), the other lines are what the commands print; else each line is a
// command. A command may go on behind a backslash and have a here-document. A loop is one command; if
// its first line ends with "do", it goes on to the line that begins with "done".
package pages
