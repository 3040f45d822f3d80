package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// The events of the log.
const (
	added   = "added"   // a message
	owned   = "owned"   // the partition has an owner with a higher epoch
	done    = "done"    // the owner is done with a message
	refused = "refused" // a worker has asked with a lower epoch than the highest one
)

// record is a line of the log, in JSON.
type record struct {
	Event     string `json:"event"`
	Queue     string `json:"queue"`
	Partition int    `json:"partition"`
	Offset    int    `json:"offset"` // of the message in its partition, from 0
	Message   string `json:"message,omitempty"`
	Epoch     int64  `json:"epoch,omitempty"`
	Highest   int64  `json:"highest,omitempty"` // so far, if a lower epoch is refused
	Worker    string `json:"worker,omitempty"`
}

// logFile is a file of records that only grows.
type logFile struct {
	file *os.File
	size int64
}

// openLog opens the log in a file, and returns its records. It removes an incomplete record at the
// end: the process ended before it answered. A new file survives a crash of the machine.
func openLog(path string) (*logFile, []record, error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the log: %w", err)
	}
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	all, err := readRecords(bytes.NewReader(content))
	if err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the log: %w", err)
	}
	l := &logFile{file: file, size: int64(len(content))}
	if err := file.Truncate(l.size); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("truncating the log: %w", err), file.Close())
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return l, all, nil
}

// syncDirectory makes the names of the files of a directory survive a crash of the machine.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the directory of the log: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("syncing the directory of the log: %w", err)
	}
	return nil
}

// append writes records so that they survive a crash of the machine.
func (l *logFile) append(all ...record) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, r := range all {
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("encoding a record: %w", err)
		}
	}
	if _, err := l.file.WriteAt(text.Bytes(), l.size); err != nil {
		return fmt.Errorf("writing the log: %w", err)
	}
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("syncing the log: %w", err)
	}
	l.size += int64(text.Len())
	return nil
}

func readRecords(r io.Reader) (all []record, err error) {
	decoder := json.NewDecoder(bufio.NewReader(r))
	for {
		var one record
		switch err := decoder.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("reading record %d of the log: %w", len(all)+1, err)
		}
		all = append(all, one)
	}
}
