// Package github writes annotations of GitHub's workflows, which a pull request
// shows at their lines.
package github

import (
	"fmt"
	"strings"
)

// Annotation is the line of an annotation of the kind error, warning or notice. A
// column of 0 is unknown.
func Annotation(kind, file string, line, column int, message string) string {
	at := fmt.Sprintf("file=%s,line=%d", property.Replace(file), line)
	if column > 0 {
		at += fmt.Sprintf(",col=%d", column)
	}
	return fmt.Sprintf("::%s %s::%s\n", kind, at, text.Replace(strings.TrimSpace(message)))
}

// They escape the bytes that would end an annotation or one of its properties.
var (
	text     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
