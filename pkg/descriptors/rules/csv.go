package rules

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"example.org/rls/internal/document"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// The columns of a table.
const (
	columnValue = iota
	columnPlan
	columnRequests
	columnUnit
	columnMultiplier
	columnBurst
	columnCount
)

var columns = []string{"value", "plan", "requests_per_unit", "unit", "unit_multiplier", "burst"}

// Table is a table that was read.
type Table struct {
	Rows *descriptors.Rows // without those that are wrong; nil without a header that can be used
	// Problems are all that can be found without the rules that name the table.
	Problems Problems
}

// OpenTable reads the table in a file.
func OpenTable(name string) (*Table, error) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() { // opening a pipe waits for a writer
		return nil, cmp.Or[error](err, &fs.PathError{Op: "open", Path: name, Err: errors.New("is not a file")})
	}
	text, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = text.Close() }()
	return ReadTable(name, text)
}

// ReadTable reads a table from a text. The name is for messages. The error is that of the text.
func ReadTable(name string, text io.Reader) (*Table, error) {
	t := tableReader{rows: &descriptors.Rows{File: name}, plans: map[string]uint32{}, says: map[descriptors.Says]uint32{}}
	if err := t.read(text); err != nil {
		return nil, err
	}
	if !t.usable {
		t.rows = nil
	}
	return &Table{Rows: t.rows, Problems: t.all()}, nil
}

// tableReader reads the records of a table.
type tableReader struct {
	rows     *descriptors.Rows
	problems Problems
	wrong    int              // how many problems there are
	usable   bool             // the header is
	at       [columnCount]int // the index of each column in a record, or -1
	text     bounded
	csv      *csv.Reader
	before   int // the lines before those that csv has read
	turns    descriptors.Turns

	plans map[string]uint32
	says  map[descriptors.Says]uint32
	bytes []byte
}

// read takes each record of a text after the header.
func (t *tableReader) read(text io.Reader) error {
	t.text = bounded{text: bufio.NewReaderSize(text, 1<<16), line: 1, column: 1}
	if mark, _ := t.text.text.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = t.text.text.Discard(3)
	}
	t.start()
	width := -1 // of the header
	for {
		t.turns.Next()
		record, err := t.csv.Read()
		if err != nil {
			if more, err := t.fault(err, width < 0); !more {
				return err
			}
			continue
		}
		switch {
		case width < 0:
			if width = len(record); !t.header(record) {
				return nil
			}
		case len(record) > width:
			t.problem(width, "", "the row has more fields than the header, which has %d", width)
		case len(record) < width:
			t.problem(0, "", "the row has fewer fields than the header, which has %d", width)
		default:
			t.take(record)
		}
	}
}

// fault reports why a record, or the header, cannot be read. It returns false if no further one can
// be, with the error of the text.
func (t *tableReader) fault(err error, header bool) (more bool, _ error) {
	var wrong *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		if header {
			t.problems.Add(document.Position{File: t.rows.File, Line: 1, Column: 1}, "", "has no header: want the column value and any of %s", strings.Join(columns[columnPlan:], ", "))
		}
		return false, nil
	case errors.As(err, &wrong):
		began := ""
		if wrong.Line > wrong.StartLine { // a quote that nobody closes takes the rest of the table
			began = fmt.Sprintf(", in the row that begins in line %d", t.before+wrong.StartLine)
		}
		t.add(t.before+wrong.Line, wrong.Column, "", "not valid CSV: %v%s", wrong.Err, began)
		return !header, nil
	case !errors.Is(err, errTooLong):
		return false, err
	}
	t.add(t.text.began[0], t.text.began[1], "", "%s", t.text.wrong)
	switch err := t.text.skip(); {
	case header, errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	t.start()
	return true, nil
}

// start reads records from the line on in which the text is.
func (t *tableReader) start() {
	t.csv, t.before = csv.NewReader(&t.text), t.text.line-1
	t.csv.ReuseRecord, t.csv.FieldsPerRecord = true, -1
}

// position is the line and the column of a field of the last record.
func (t *tableReader) position(field int) (line, column int) {
	line, column = t.csv.FieldPos(field)
	return t.before + line, column
}

// problem reports a fault of a field of the last record.
func (t *tableReader) problem(field int, column, format string, args ...any) {
	line, at := t.position(field)
	t.add(line, at, column, format, args...)
}

func (t *tableReader) add(line, at int, column, format string, args ...any) {
	if t.wrong++; t.wrong <= document.MaxTold {
		t.problems.Add(document.Position{File: t.rows.File, Line: line, Column: at}, column, format, args...)
	}
}

// all are the problems, the last of which says how many more there are.
func (t *tableReader) all() Problems {
	if more := t.wrong - len(t.problems); more > 0 {
		t.problems.AddMore(t.problems[len(t.problems)-1].Position, more)
	}
	return t.problems
}

// header reads the names of the columns.
func (t *tableReader) header(record []string) bool {
	for i := range t.at {
		t.at[i] = -1
	}
	for i, name := range record {
		switch column := slices.Index(columns, name); {
		case column < 0:
			t.problem(i, "", "unknown column %.100q%s", name, spelling.Suggest(name, columns))
		case t.at[column] >= 0:
			t.problem(i, name, "the column is repeated; write it once")
		default:
			t.at[column] = i
		}
	}
	switch {
	case len(t.problems) > 0:
	case t.at[columnValue] < 0:
		t.problem(0, "", "the column value is missing")
	case len(record) == 1:
		t.problem(0, "", "want the column plan, or any of %s", strings.Join(columns[columnRequests:], ", "))
	}
	t.rows.Planned, t.usable = t.at[columnPlan] >= 0, len(t.problems) == 0
	return t.usable
}

// take adds a record to the rows, unless it is wrong.
func (t *tableReader) take(record []string) {
	before := t.wrong
	value := record[t.at[columnValue]]
	switch {
	case value == "":
		t.problem(t.at[columnValue], "value", "must not be empty")
	case !utf8.ValidString(value):
		t.problem(t.at[columnValue], "value", "is not valid UTF-8")
	}
	line, _ := t.position(0)
	if _, first, again := t.rows.Find(value); again {
		t.problem(t.at[columnValue], "value", "%.100q is already in line %d; keep one of the two rows", value, first)
	}
	amounts, plan := t.amountsOf(record), t.planOf(record)
	if t.wrong == before {
		same := func(s descriptors.Says) descriptors.Says { return s }
		says := descriptors.Says{Amounts: amounts, Plan: numbered(t.plans, &t.rows.Plans, plan, strings.Clone)}
		t.rows.Add(value, numbered(t.says, &t.rows.Says, says, same), uint32(line), t.bytes)
	}
}

// numbered is the index of x in a list, whose indices are in numbers. An x that is not there is
// added as keep returns it.
func numbered[X comparable](numbers map[X]uint32, list *[]X, x X, keep func(X) X) uint32 {
	number, known := numbers[x]
	if !known {
		x, number = keep(x), uint32(len(*list))
		numbers[x], *list = number, append(*list, x)
	}
	return number
}

// planOf is the plan of a row; "" if the row has none. It appends the plan to bytes.
func (t *tableReader) planOf(record []string) string {
	name := t.field(record, columnPlan)
	if !utf8.ValidString(name) {
		t.problem(t.at[columnPlan], "plan", "is not valid UTF-8")
	}
	t.bytes = append(t.bytes, name...)
	return name
}

// amountsOf are the amounts of a row. It sets bytes to them, and to nothing if there are none.
func (t *tableReader) amountsOf(record []string) (a descriptors.Amounts) {
	a.Requests, a.Given = t.amount(record, columnRequests, 0)
	a.Multiplier, _ = t.amount(record, columnMultiplier, 1)
	a.Burst, _ = t.amount(record, columnBurst, 1)
	if text := t.field(record, columnUnit); text != "" {
		if a.Unit = descriptors.ParseUnit(text); !a.Unit.Valid() {
			t.problem(t.at[columnUnit], "unit", "unknown unit %.100q%s", text, spelling.Suggest(text, descriptors.UnitNames()))
		}
	}
	if t.bytes = t.bytes[:0]; a == (descriptors.Amounts{}) {
		return a
	}
	t.bytes = binary.AppendUvarint(binary.AppendUvarint(t.bytes[:0], uint64(a.Requests)), uint64(a.Multiplier))
	t.bytes = binary.AppendUvarint(append(t.bytes, byte(a.Unit)), uint64(a.Burst))
	t.bytes = strconv.AppendBool(t.bytes, a.Given)
	return a
}

// field is the text of a column; "" if the table lacks it.
func (t *tableReader) field(record []string, column int) string {
	if i := t.at[column]; i >= 0 {
		return record[i]
	}
	return ""
}

// amount is a number in a column; given is false if there is none.
func (t *tableReader) amount(record []string, column int, least uint64) (n uint32, given bool) {
	text := t.field(record, column)
	if text == "" {
		return 0, false
	}
	x, err := strconv.ParseUint(text, 10, 32)
	if err != nil || x < least {
		t.problem(t.at[column], columns[column], "must be a whole number from %d to %d, not %.100q", least, uint32(math.MaxUint32), text)
	}
	return uint32(x), true
}

// faults are what is wrong with what rows say, by its number.
type faults map[uint32]*algorithms.SpecError

// report reports the rows that say what is wrong, in the order of their lines.
func (f faults) report(rows *descriptors.Rows, problems *Problems) {
	wrong := map[uint32]*algorithms.SpecError{} // by line
	rows.Each(func(number, line uint32) {
		if fault := f[number]; fault != nil {
			wrong[line] = fault
		}
	})
	found := tableReader{rows: rows}
	for _, line := range slices.Sorted(maps.Keys(wrong)) {
		found.add(int(line), 0, wrong[line].Field, "%s", wrong[line].Message)
	}
	*problems = append(*problems, found.all()...)
}
