package cli

import (
	"encoding/json"
	"io"
)

// Output is the flag --format of a command that can write text or one JSON document.
// Where the struct is embedded, the tag set:"output=answer" is the name of the result in the help.
type Output struct {
	Format string `default:"text" enum:"text,json" help:"How the ${output} is written: text or json."`
}

// JSON reports whether a JSON document is wanted.
func (o *Output) JSON() bool { return o.Format == "json" }

// Write writes the document as JSON on one line, or calls text.
func (o *Output) Write(w io.Writer, document any, text func(io.Writer) error) error {
	if o.JSON() {
		return WriteJSON(w, document)
	}
	return text(w)
}

// WriteJSON writes a document as JSON on one line.
func WriteJSON(w io.Writer, document any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(document)
}
