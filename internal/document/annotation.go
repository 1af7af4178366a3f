package document

import (
	"fmt"
	"strings"
)

// Annotation is the line of an annotation of a workflow of GitHub, which a pull request shows at the
// line of the file. The kind is error, warning or notice. A column of 0 is unknown.
func Annotation(kind, file string, line, column int, message string) string {
	at := fmt.Sprintf("file=%s,line=%d", annotationProperty.Replace(file), line)
	if column > 0 {
		at += fmt.Sprintf(",col=%d", column)
	}
	return fmt.Sprintf("::%s %s::%s\n", kind, at, annotationText.Replace(strings.TrimSpace(message)))
}

// They escape the bytes that would end an annotation or one of its properties.
var (
	annotationText     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	annotationProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
