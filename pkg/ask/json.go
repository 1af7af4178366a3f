package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"example.org/rls/internal/fields"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/service"
)

// ParseJSON reads a request in JSON. Its error names every problem, with line and
// column.
func ParseJSON(text []byte) (service.Ask, error) {
	v, err := parseValue(text)
	if err != nil {
		return service.Ask{}, err
	}
	var r fields.Reader
	a := Read(&r, v)
	if len(r.Problems) > 0 {
		return service.Ask{}, wrong(r.Problems)
	}
	return a, nil
}

// wrong has the problems of a request in JSON.
type wrong rules.Problems

// Error is one problem after the other, on one line.
func (w wrong) Error() string {
	list := make([]string, len(w))
	for i, p := range w {
		name := p.Field
		if name == "" {
			name = "the request"
		}
		list[i] = fmt.Sprintf("%s: %s (line %d, column %d)", name, p.Message, p.Line, p.Column)
	}
	return strings.Join(list, "; ")
}

// parseValue reads one JSON value.
func parseValue(text []byte) (*rules.Value, error) {
	p := jsonReader{Decoder: json.NewDecoder(strings.NewReader(string(text))), text: text, line: 1, column: 1}
	p.UseNumber()
	v, err := p.value(0)
	if err == nil {
		err = atEnd(p.Decoder)
	}
	if err != nil {
		p.advance(int(p.InputOffset()))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("not valid JSON: %w (line %d, column %d)", err, p.line, p.column)
	}
	return &v, nil
}

// jsonReader turns JSON into values with positions.
type jsonReader struct {
	*json.Decoder
	text         []byte
	offset       int // of line and column
	line, column int // from 1
}

// mostDepth bounds how deep values may stand in each other.
const mostDepth = 100

func (p *jsonReader) value(depth int) (rules.Value, error) {
	at := p.next()
	if depth > mostDepth {
		return rules.Value{}, fmt.Errorf("values stand more than %d deep in each other", mostDepth)
	}
	token, err := p.Token()
	if err != nil {
		return rules.Value{}, err
	}
	switch token := token.(type) {
	case json.Delim:
		v := rules.Value{Kind: rules.Map, At: at}
		if token == '[' {
			v.Kind = rules.List
		}
		for p.More() {
			item, err := p.value(depth + 1)
			if err != nil {
				return v, err
			}
			v.Content = append(v.Content, item)
			if v.Kind == rules.Map { // More is for whole pairs
				if item, err = p.value(depth + 1); err != nil {
					return v, err
				}
				v.Content = append(v.Content, item)
			}
		}
		_, err := p.Token() // the closing bracket
		return v, err
	case json.Number:
		if n, err := strconv.ParseInt(token.String(), 10, 64); err == nil {
			return rules.Scalar(at, token.String(), n), nil
		}
		f, _ := token.Float64()
		return rules.Scalar(at, token.String(), f), nil
	case bool:
		return rules.Scalar(at, strconv.FormatBool(token), token), nil
	case string:
		return rules.Text(at, token), nil
	}
	return rules.Scalar(at, "null", nil), nil
}

// next is the position of the next token.
func (p *jsonReader) next() descriptors.Position {
	start := int(p.InputOffset())
	for start < len(p.text) && strings.IndexByte(" \t\r\n,:", p.text[start]) >= 0 {
		start++
	}
	p.advance(start)
	return descriptors.Position{Line: p.line, Column: p.column}
}

// advance moves line and column to an offset.
func (p *jsonReader) advance(to int) {
	for ; p.offset < min(to, len(p.text)); p.offset++ {
		p.column++
		if p.text[p.offset] == '\n' {
			p.line, p.column = p.line+1, 1
		}
	}
}
