package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// What can follow the title of a column.
const (
	right   = ">" // its values are aligned to the right
	snipped = "~" // they are cut, to no less than narrowest, if the terminal has not enough columns
)

const narrowest = 8

// Table is a table: for people with a heading, for programs with tabs between the columns.
type Table struct {
	out     io.Writer
	columns []string
	rows    [][]string // for people, the first is the heading
}

// NewTable returns a table without rows, which Print writes to out. The columns are their titles,
// with a > behind titles of numbers, and a ~ behind titles of names, which are cut to fit.
func NewTable(out io.Writer, columns ...string) *Table {
	t := &Table{out: out, columns: columns}
	if Is(out) {
		titles := strings.NewReplacer(right, "", snipped, "").Replace(strings.Join(columns, "\n"))
		t.rows = append(t.rows, strings.Split(titles, "\n"))
	}
	return t
}

// Row adds a row. People get numbers with commas. Texts may come from others.
func (t *Table) Row(values ...any) {
	row := make([]string, len(values))
	for i, v := range values {
		if n, ok := v.(int64); ok && Is(t.out) {
			v = Grouped(n)
		}
		row[i] = Plain(fmt.Sprint(v))
	}
	t.rows = append(t.rows, row)
}

// Print prints the table, and for people as of when it is.
func (t *Table) Print() error {
	_, err := io.WriteString(t.out, t.String()+AsOf(t.out))
	return err
}

// String returns the table.
func (t *Table) String() string {
	var b strings.Builder
	if !Is(t.out) {
		for _, row := range t.rows {
			b.WriteString(strings.Join(row, "\t") + "\n")
		}
		return b.String()
	}

	widths := t.widths()
	for _, row := range t.rows {
		line := slices.Clone(row)
		for i, col := range t.columns {
			align := text.AlignLeft
			if strings.HasSuffix(col, right) {
				align = text.AlignRight
			}
			line[i] = align.Apply(Clip(row[i], widths[i]), widths[i])
		}
		b.WriteString(strings.TrimRight(strings.Join(line, between), " ") + "\n")
	}

	return b.String()
}

// between is the blanks between columns.
const between = "  "

// widths returns how wide the columns are. Columns of names, the first before the others, make room
// for the rest.
func (t *Table) widths() []int {
	widths, all := make([]int, len(t.columns)), -len(between)
	for i := range widths {
		for _, row := range t.rows {
			widths[i] = max(widths[i], text.StringWidth(row[i]))
		}
		all += widths[i] + len(between)
	}

	for i, col := range t.columns {
		if over := all - Width(t.out); over > 0 && strings.HasSuffix(col, snipped) {
			narrow := max(widths[i]-over, min(widths[i], narrowest))
			all -= widths[i] - narrow
			widths[i] = narrow
		}
	}

	return widths
}
