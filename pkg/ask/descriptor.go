package ask

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"example.org/rls/pkg/descriptors"
)

// ParseDescriptor reads one of KEY=VALUE,KEY=VALUE (without = the value is
// empty; see [descriptors.ParsePair]), {"KEY": "VALUE", …} and [{"key": "KEY", "value": "VALUE"}, …],
// of which each can have raw and raw_key (see [descriptors.Shown]). The entries keep their order.
func ParseDescriptor(text string) ([]descriptors.Entry, error) {
	parsed, err := parse(text)
	switch {
	case err != nil:
	case len(parsed) == 0:
		err = errors.New("no entry")
	case slices.ContainsFunc(parsed, func(e descriptors.Entry) bool { return e.Key == "" }):
		err = errors.New("a key is empty")
	}
	if err != nil {
		return nil, fmt.Errorf(`descriptor %s: %w; want KEY=VALUE, several separated by commas, {"KEY": "VALUE"} or [{"key": "KEY", "value": "VALUE"}], which can have "raw" and "raw_key" with bytes in base64`, text, err)
	}
	return parsed, nil
}

func parse(text string) (parsed []descriptors.Entry, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	switch start := strings.TrimSpace(text); {
	case strings.HasPrefix(start, "{"):
		parsed, err = parseObject(decoder)
	case strings.HasPrefix(start, "["):
		err = decoder.Decode(&parsed)
	default:
		for pair := range strings.SplitSeq(text, ",") {
			parsed = append(parsed, descriptors.ParsePair(pair))
		}
		return parsed, nil
	}
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON value")
	}
	return parsed, nil
}

func parseObject(decoder *json.Decoder) (parsed []descriptors.Entry, err error) {
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
	_, err = decoder.Token()
	return parsed, err
}
