package trail

import (
	"strconv"
	"strings"
)

// Job is a job, and the queue that it was pushed to.
type Job struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
}

// String returns the job as a header has it, which ParseJob reads.
func (j Job) String() string { return j.Queue + " " + j.ID }

// ParseJob reads what Job.String returns, and reports whether it could.
func ParseJob(value string) (Job, bool) {
	queue, id, found := strings.Cut(value, " ")
	return Job{queue, id}, found && queue != "" && id != ""
}

// Successors returns the values of HeaderNext for what a job has pushed: the first MaxSuccessors,
// and then how many more there are.
func Successors(all []Job) (values []string) {
	for _, j := range all[:min(len(all), MaxSuccessors)] {
		values = append(values, j.String())
	}
	if more := len(all) - MaxSuccessors; more > 0 {
		values = append(values, "+"+strconv.Itoa(more))
	}
	return values
}

// ParseSuccessors reads the values of HeaderNext. It passes over what it cannot read.
func ParseSuccessors(values []string) (all []Job, more int) {
	for _, value := range values {
		if j, ok := ParseJob(value); ok {
			all = append(all, j)
		} else if n, found := strings.CutPrefix(value, "+"); found {
			more, _ = strconv.Atoi(n)
		}
	}
	return all, more
}
