package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"example.org/rls/pkg/descriptors"
)

type entries = []descriptors.Entry

// ParseDescriptor reads one of KEY=VALUE,KEY=VALUE (without = the value is
// empty), {"KEY": "VALUE", …} and [{"key": "KEY", "value": "VALUE"}, …]. The
// entries keep their order.
func ParseDescriptor(text string) ([]descriptors.Entry, error) {
	parse := parsePairs
	switch start := strings.TrimSpace(text); {
	case strings.HasPrefix(start, "{"):
		parse = parseObject
	case strings.HasPrefix(start, "["):
		parse = parseArray
	}
	parsed, err := parse(text)
	for _, entry := range parsed {
		if err == nil && entry.Key == "" {
			err = errors.New("a key is empty")
		}
	}
	if err == nil && len(parsed) == 0 {
		err = errors.New("no entry")
	}
	if err != nil {
		return nil, fmt.Errorf(`descriptor %s: %w; want KEY=VALUE, several separated by commas, {"KEY": "VALUE"} or [{"key": "KEY", "value": "VALUE"}]`, text, err)
	}
	return parsed, nil
}

func parsePairs(text string) (parsed entries, err error) {
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		parsed = append(parsed, descriptors.Entry{Key: key, Value: value})
	}
	return parsed, nil
}

func parseObject(text string) (parsed entries, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	if _, err := decoder.Token(); err != nil { // the brace
		return nil, err
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		entry := descriptors.Entry{Key: fmt.Sprint(key)} // a key is always a string
		if err := decoder.Decode(&entry.Value); err != nil {
			return nil, fmt.Errorf("value of %q: %w", entry.Key, err)
		}
		parsed = append(parsed, entry)
	}
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	return parsed, atEnd(decoder)
}

func parseArray(text string) (parsed entries, err error) {
	var pairs []struct{ Key, Value string }
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&pairs); err != nil {
		return nil, err
	}
	for _, pair := range pairs {
		parsed = append(parsed, descriptors.Entry{Key: pair.Key, Value: pair.Value})
	}
	return parsed, atEnd(decoder)
}

// atEnd fails when something follows the JSON value.
func atEnd(decoder *json.Decoder) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return nil
}
