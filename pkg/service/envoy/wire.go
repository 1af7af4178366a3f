package envoy

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// This file reads and writes the wire format of protobuf
// (https://protobuf.dev/programming-guides/encoding). It accepts and refuses the
// messages that proto.Unmarshal accepts and refuses, but for strings that are not UTF-8: Envoy copies
// into them the bytes that its clients send. A fuzz test compares them.

// Wire types, as the low bits of a tag.
const (
	isVarint = uint64(protowire.VarintType)
	isBytes  = uint64(protowire.BytesType)
)

var errWire = errors.New("the message is not in protobuf's wire format")

// message is the rest of a message that is being read. Both fields hold the same bytes:
// protowire reads data, and strings are cut from text without a copy of each.
type message struct {
	data []byte
	text string
}

// field is one field of a message.
type field struct {
	tag   uint64  // the field's number × 8 + its wire type
	value uint64  // of a varint
	part  message // of the wire type bytes
}

// next takes the next field off m. Fields of other wire types than varint and
// bytes have a tag only: no message that the service reads has such fields.
func (m *message) next() (f field, err error) {
	number, kind, n := protowire.ConsumeTag(m.data)
	if n < 0 || number > protowire.MaxValidNumber {
		return f, errWire
	}
	f.tag = protowire.EncodeTag(number, kind)
	rest := m.data[n:]
	var size int
	switch kind {
	case protowire.VarintType:
		f.value, size = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		f.part.data, size = protowire.ConsumeBytes(rest)
	default:
		size = protowire.ConsumeFieldValue(number, kind, rest)
	}
	if size < 0 {
		return f, errWire
	}
	n += size
	f.part.text = m.text[n-len(f.part.data) : n]
	m.data, m.text = m.data[n:], m.text[n:]
	return f, nil
}

// each calls read with the fields of m in their order, until one returns an error.
func (m message) each(read func(field) error) error {
	for len(m.data) > 0 {
		f, err := m.next()
		if err == nil {
			err = read(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wrapped reads a message of google/protobuf/wrappers.proto, which has a varint in
// field 1, into value. If the message has no such field, value stays as it is.
func (m message) wrapped(value *uint64) error {
	return m.each(func(f field) error {
		if f.tag == 1<<3|isVarint {
			*value = f.value
		}
		return nil
	})
}

// appendMessage appends a message, whose fields are what fields appends.
func appendMessage(b []byte, number protowire.Number, fields func([]byte) []byte) []byte {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0) // the byte is for the length
	start := len(b)
	b = fields(b)
	length := uint64(len(b) - start)
	if more := protowire.SizeVarint(length) - 1; more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[start+more:], b[start:])
	}
	protowire.AppendVarint(b[:start-1], length)
	return b
}

// appendUint appends a varint, unless it is 0: fields that are 0 are left out.
func appendUint(b []byte, number protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}

// appendString appends a string, unless it is empty.
func appendString[T string | []byte](b []byte, number protowire.Number, value T) []byte {
	if len(value) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(len(value)))
	return append(b, value...)
}
