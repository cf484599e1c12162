"""Classes like those of ClassEval that write XML, databases and other files.

If their tests pass in plain Python, they must pass in the sandbox.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codejudge import Level, Sandbox, Suite
from codejudge.needs import needs_files, needs_object
from tests.fixtures.wide import widely

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux can keep a program in a folder"
)

XML = (
    r"""
import xml.etree.ElementTree as ET
class XMLProcessor:
    def __init__(self, file_name):
        self.file_name = file_name
        self.root = None
    def read_xml(self):
        try:
            tree = ET.parse(self.file_name)
            self.root = tree.getroot()
            return self.root
        except:
            return None
    def write_xml(self, file_name):
        try:
            tree = ET.ElementTree(self.root)
            tree.write(file_name)
            return True
        except:
            return False
    def process_xml_data(self, file_name):
        for element in self.root.iter('item'):
            text = element.text
            element.text = text.upper()
        return self.write_xml(file_name)
    def find_element(self, element_name):
        return self.root.findall(element_name)
""",
    r"""
import unittest
import os
class XMLProcessorTestReadXml(unittest.TestCase):
    def test_read_xml_1(self):
        with open('test.xml', 'w') as f:
            f.write('<root>\n <item>apple</item>\n <item>banana</item>\n</root>')
        self.xml_file = 'test.xml'
        self.processor = XMLProcessor(self.xml_file)
        self.tree = ET.parse(self.processor.file_name)
        self.processor.root = self.tree.getroot()
        result = self.processor.read_xml()
        expected = self.processor.root
        self.assertEqual(expected, result)
    def test_read_xml_none(self):
        self.processor = XMLProcessor('absent.xml')
        self.assertIsNone(self.processor.read_xml())
    def test_root(self):
        with open('test.xml', 'w') as f:
            f.write('<root><item>apple</item></root>')
        self.processor = XMLProcessor('test.xml')
        root = self.processor.read_xml()
        self.assertEqual(root.tag, 'root')
        self.assertEqual([e.text for e in root], ['apple'])
        self.assertTrue(ET.iselement(root))
        self.assertIsInstance(root, ET.Element)
class XMLProcessorTestWriteXml(unittest.TestCase):
    def setUp(self):
        with open('test.xml', 'w') as f:
            f.write('<root><item>apple</item></root>')
        self.processor = XMLProcessor('test.xml')
        self.tree = ET.parse(self.processor.file_name)
        self.processor.root = self.tree.getroot()
        self.output_file = 'output.xml'
    def tearDown(self):
        if os.path.exists(self.output_file):
            os.remove(self.output_file)
    def test_write_xml_1(self):
        self.assertTrue(self.processor.write_xml(self.output_file))
        self.assertTrue(os.path.exists(self.output_file))
    def test_write_bad(self):
        self.assertFalse(self.processor.write_xml(''))
    def test_find(self):
        found = self.processor.find_element('item')
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0].text, 'apple')
        expected = [e for e in self.processor.root.findall('item')]
        self.assertEqual(found, expected)
    def test_process(self):
        self.assertTrue(self.processor.process_xml_data(self.output_file))
        self.assertEqual(ET.parse(self.output_file).getroot()[0].text, 'APPLE')
class XMLProcessorTestProcess(unittest.TestCase):
    def test_element_set(self):
        p = XMLProcessor('x')
        p.root = ET.Element('root')
        ET.SubElement(p.root, 'item').text = 'a'
        self.assertTrue(p.process_xml_data('o.xml'))
        self.assertEqual(p.root[0].text, 'A')
        self.assertEqual(ET.tostring(p.root), b'<root><item>A</item></root>')
""",
)
DOCUMENTS = (
    r"""
import xml.dom.minidom, xml.sax, xml.etree.ElementTree
from xml.etree.ElementTree import Element, SubElement, ElementTree, iterparse, indent
class Doc:
    def __init__(self, path):
        self.path = path
    def make(self, items):
        root = Element('r')
        for i in items:
            SubElement(root, 'i', n=str(i)).text = 'é' + str(i)
        tree = ElementTree(root)
        indent(tree)
        tree.write(self.path, encoding='utf-8', xml_declaration=True)
    def dom(self):
        return [n.getAttribute('n') for n in xml.dom.minidom.parse(self.path).getElementsByTagName('i')]
    def pretty(self):
        return xml.dom.minidom.parse(self.path).toprettyxml()[:5]
    def sax(self):
        seen = []
        class H(xml.sax.ContentHandler):
            def startElement(self, name, attrs):
                seen.append(name)
        xml.sax.parse(self.path, H())
        return seen
    def events(self):
        return [e.tag for _, e in iterparse(self.path)]
    def tree(self):
        return xml.etree.ElementTree.parse(self.path)
""",  # noqa: E501
    r"""
import unittest, tempfile, os
class D(unittest.TestCase):
    def setUp(self):
        fd, self.path = tempfile.mkstemp(suffix='.xml')
        os.close(fd)
        self.d = Doc(self.path)
        self.d.make([1, 2])
    def tearDown(self):
        os.unlink(self.path)
    def test_dom(self):
        self.assertEqual(self.d.dom(), ['1', '2'])
    def test_pretty(self):
        self.assertEqual(self.d.pretty(), '<?xml')
    def test_sax(self):
        self.assertEqual(self.d.sax(), ['r', 'i', 'i'])
    def test_events(self):
        self.assertEqual(self.d.events(), ['i', 'i', 'r'])
    def test_tree(self):
        self.assertEqual(self.d.tree().getroot().find('i').get('n'), '1')
    def test_tree2(self):
        self.assertEqual([i.text for i in self.d.tree().getroot()], ['é1', 'é2'])
""",
)
STUDENTS = (
    r"""
import sqlite3
class StudentDatabaseProcessor:
    def __init__(self, database_name):
        self.database_name = database_name
    def create_student_table(self):
        conn = sqlite3.connect(self.database_name)
        cursor = conn.cursor()
        cursor.execute('CREATE TABLE IF NOT EXISTS students (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)')
        conn.commit()
        conn.close()
    def insert_student(self, d):
        conn = sqlite3.connect(self.database_name)
        cursor = conn.cursor()
        cursor.execute('INSERT INTO students (name, age) VALUES (?, ?)', (d['name'], d['age']))
        conn.commit()
        conn.close()
    def search_student_by_name(self, name):
        conn = sqlite3.connect(self.database_name)
        cursor = conn.cursor()
        cursor.execute('SELECT * FROM students WHERE name = ?', (name,))
        result = cursor.fetchall()
        conn.close()
        return result
    def delete_student_by_name(self, name):
        conn = sqlite3.connect(self.database_name)
        cursor = conn.cursor()
        cursor.execute('DELETE FROM students WHERE name = ?', (name,))
        conn.commit()
        conn.close()
""",  # noqa: E501
    r"""
import unittest
import os, shutil, sqlite3, tempfile
class T(unittest.TestCase):
    def setUp(self):
        SETUP
        self.processor = StudentDatabaseProcessor(self.path)
        self.processor.create_student_table()
    def tearDown(self):
        conn = sqlite3.connect(self.path)
        conn.execute('DROP TABLE IF EXISTS students')
        conn.commit()
        conn.close()
        TEARDOWN
    def test_create(self):
        conn = sqlite3.connect(self.path)
        cursor = conn.cursor()
        cursor.execute("SELECT name FROM sqlite_master WHERE type='table' AND name='students'")
        result = cursor.fetchone()
        conn.close()
        self.assertIsNotNone(result)
        self.assertEqual(result[0], 'students')
    def test_insert(self):
        self.processor.insert_student({'name': 'Bob', 'age': 1})
        conn = sqlite3.connect(self.path)
        rows = conn.execute('SELECT * FROM students WHERE name=?', ('Bob',)).fetchall()
        conn.close()
        self.assertEqual(len(rows), 1)
        self.assertEqual(self.processor.search_student_by_name('Bob'), rows)
        self.processor.delete_student_by_name('Bob')
        self.assertEqual(self.processor.search_student_by_name('Bob'), [])
    def test_missing_table(self):
        with self.assertRaises(sqlite3.OperationalError):
            StudentDatabaseProcessor(os.path.join(os.path.dirname(self.path), 'other.db')).search_student_by_name('x')
""",  # noqa: E501
)
PLACES = {
    "a_name": ('self.path = "students.db"', "os.remove(self.path)"),
    "mkdtemp": (
        "self.dir = tempfile.mkdtemp(); self.path = os.path.join(self.dir, 't.db')",
        "shutil.rmtree(self.dir)",
    ),
    "a_named_file": (
        "self.file = tempfile.NamedTemporaryFile(suffix='.db'); self.path = self.file.name",
        "self.file.close()",
    ),
    "a_named_file_that_stays": (
        "self.file = tempfile.NamedTemporaryFile(delete=False); "
        "self.path = self.file.name; self.file.close()",
        "os.unlink(self.path)",
    ),
    "a_folder": (
        "self.d = tempfile.TemporaryDirectory(); self.path = os.path.join(self.d.name, 'x.db')",
        "self.d.cleanup()",
    ),
    "mkstemp": (
        "self.fd, self.path = tempfile.mkstemp()",
        "os.close(self.fd); os.remove(self.path)",
    ),
    "gettempdir": (
        "self.path = os.path.join(tempfile.gettempdir(), 'own-y.db')",
        "os.remove(self.path)",
    ),
}
"""Where the tests put the database of the class, and how they remove it."""
BOOKS = (
    r"""
import sqlite3
class BookManagementDB:
    def __init__(self, db_name):
        self.connection = sqlite3.connect(db_name)
        self.cursor = self.connection.cursor()
        self.create_table()
    def create_table(self):
        self.cursor.execute('CREATE TABLE IF NOT EXISTS books (id INTEGER PRIMARY KEY, title TEXT, author TEXT)')
        self.connection.commit()
    def add_book(self, title, author):
        self.cursor.execute('INSERT INTO books (title, author) VALUES (?, ?)', (title, author))
        self.connection.commit()
    def search_books(self):
        self.cursor.execute('SELECT * FROM books')
        return self.cursor.fetchall()
""",  # noqa: E501
    r"""
import unittest
import os
class B(unittest.TestCase):
    def setUp(self):
        self.connection = sqlite3.connect('test.db')
        self.cursor = self.connection.cursor()
    def tearDown(self):
        self.connection.close()
        os.unlink('test.db')
    def test_create_table_1(self):
        book_db = BookManagementDB('test.db')
        self.cursor.execute("SELECT name FROM sqlite_master WHERE type='table' AND name='books'")
        self.assertIsNotNone(self.cursor.fetchone())
    def test_add(self):
        book_db = BookManagementDB('test.db')
        book_db.add_book('B1', 'A1')
        book_db.add_book('B2', 'A2')
        self.cursor.execute('SELECT * FROM books')
        self.assertEqual(self.cursor.fetchall(), [(1, 'B1', 'A1'), (2, 'B2', 'A2')])
        self.assertEqual(book_db.search_books(), [(1, 'B1', 'A1'), (2, 'B2', 'A2')])
    def test_inner(self):
        book_db = BookManagementDB('test.db')
        book_db.cursor.execute("INSERT INTO books VALUES (7, 'a', 'b')")
        book_db.connection.commit()
        self.assertEqual(book_db.cursor.execute('SELECT * FROM books').fetchall(), [(7, 'a', 'b')])
        book_db.connection.close()
""",
)
TICKETS = (
    r"""
import sqlite3
class MovieTicketDB:
    def __init__(self, db_name):
        self.connection = sqlite3.connect(db_name)
        self.cursor = self.connection.cursor()
        self.create_table()
    def create_table(self):
        self.cursor.execute('CREATE TABLE IF NOT EXISTS tickets (id INTEGER PRIMARY KEY, movie_name TEXT)')
        self.connection.commit()
    def insert_ticket(self, movie_name):
        self.cursor.execute('INSERT INTO tickets (movie_name) VALUES (?)', (movie_name,))
        self.connection.commit()
    def search(self, n):
        self.cursor.execute('SELECT * FROM tickets WHERE movie_name = ?', (n,))
        return self.cursor.fetchall()
""",  # noqa: E501
    r"""
import unittest, tempfile
from pathlib import Path
class M(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.path = Path(self.tmp.name) / 'tickets.db'
        self.db = MovieTicketDB(str(self.path))
    def test_insert(self):
        self.db.insert_ticket('Movie A')
        self.assertTrue(self.path.exists())
        self.assertEqual(self.db.search('Movie A'), [(1, 'Movie A')])
    def test_path_object(self):
        db = MovieTicketDB(Path(self.tmp.name) / 'o.db')
        self.assertEqual(db.search('Movie A'), [])
""",
)
STORE = (
    r"""
import sqlite3, contextlib
class Store:
    def __init__(self, path):
        self.conn = sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES)
        self.conn.row_factory = sqlite3.Row
        self.conn.execute('create table if not exists t(k text primary key, v text)')
    def put(self, k, v):
        with self.conn:
            self.conn.execute('insert into t values (?, ?)', (k, v))
    def get(self, k):
        r = self.conn.execute('select v from t where k=?', (k,)).fetchone()
        return r and r['v']
    def bulk(self, n):
        with self.conn:
            self.conn.executemany('insert into t values (?, ?)', ((str(i), 'x' * 100) for i in range(n)))
        return self.conn.execute('select count(*) from t').fetchone()[0]
    def dump(self):
        return list(self.conn.iterdump())
    def vacuum(self):
        self.conn.execute('vacuum')
        return self.conn.execute('select count(*) from t order by v').fetchone()[0]
    def backup(self, path):
        with contextlib.closing(sqlite3.connect(path)) as other:
            self.conn.backup(other)
    def close(self):
        self.conn.close()
""",  # noqa: E501
    r"""
import unittest, tempfile, os, sqlite3
class S(unittest.TestCase):
    def setUp(self):
        self.path = os.path.join(tempfile.mkdtemp(), 's.db')
        self.s = Store(self.path)
    def tearDown(self):
        self.s.close()
    def test_put(self):
        self.s.put('a', '1')
        self.assertEqual(self.s.get('a'), '1')
        self.assertIsNone(self.s.get('b'))
        with self.assertRaises(sqlite3.IntegrityError):
            self.s.put('a', '2')
    def test_bulk(self):
        self.assertEqual(self.s.bulk(2000), 2000)
    def test_vacuum(self):
        self.s.bulk(3000)
        self.assertEqual(self.s.vacuum(), 3000)
    def test_dump(self):
        self.s.put('a', '1')
        self.assertIn('COMMIT;', self.s.dump())
    def test_backup(self):
        self.s.put('a', '1')
        self.s.backup(self.path + '2')
        self.assertEqual(Store(self.path + '2').get('a'), '1')
    def test_second(self):
        self.s.put('a', '1')
        other = Store(self.path)
        self.assertEqual(other.get('a'), '1')
        other.put('b', '2')
        self.assertEqual(self.s.get('b'), '2')
        other.close()
""",
)
BOX = (
    r"""
import csv, json, os, shutil, zipfile, tempfile, glob, gzip, tarfile, configparser, pickle, logging
from pathlib import Path
class FileBox:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
    def save(self, name, data):
        (self.folder / name).write_text(json.dumps(data))
        return str(self.folder / name)
    def load(self, name):
        return json.loads((self.folder / name).read_text())
    def names(self):
        return sorted((p.name for p in self.folder.iterdir()))
    def zip(self, out):
        with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as z:
            for p in sorted(self.folder.glob('*')):
                z.write(p, p.name)
        return zipfile.ZipFile(out).namelist()
    def unzip(self, src, to):
        with zipfile.ZipFile(src) as z:
            z.extractall(to)
        return sorted(os.listdir(to))
    def gz(self, name):
        with gzip.open(self.folder / (name + '.gz'), 'wt') as f:
            f.write('hello')
        with gzip.open(self.folder / (name + '.gz'), 'rt') as f:
            return f.read()
    def tar(self, out):
        with tarfile.open(out, 'w:gz') as t:
            t.add(self.folder, arcname='x')
        with tarfile.open(out) as t:
            return sorted(t.getnames())
    def untar(self, out, to):
        with tarfile.open(out) as t:
            t.extractall(to)
        return sorted((str(p.relative_to(to)) for p in Path(to).rglob('*')))
    def rows(self, name, rows):
        with open(self.folder / name, 'w', newline='') as f:
            csv.writer(f).writerows(rows)
        with open(self.folder / name, newline='') as f:
            return list(csv.DictReader(f))
    def ini(self, name):
        c = configparser.ConfigParser()
        c['a'] = {'b': '1'}
        with open(self.folder / name, 'w') as f:
            c.write(f)
        d = configparser.ConfigParser()
        d.read(self.folder / name)
        return d['a']['b']
    def pick(self, name, v):
        with open(self.folder / name, 'wb') as f:
            pickle.dump(v, f)
        with open(self.folder / name, 'rb') as f:
            return pickle.load(f)
    def log(self, name):
        l = logging.getLogger('x')
        h = logging.FileHandler(self.folder / name)
        l.addHandler(h)
        l.warning('hi')
        h.close()
        l.removeHandler(h)
        return (self.folder / name).read_text()
    def copytree(self, to):
        shutil.copytree(self.folder, to)
        return sorted(os.listdir(to))
    def move(self, a, b):
        shutil.move(self.folder / a, self.folder / b)
        return self.names()
    def archive(self, base):
        return os.path.basename(shutil.make_archive(base, 'zip', self.folder))
    def size(self):
        return sum((p.stat().st_size for p in self.folder.rglob('*') if p.is_file()))
    def walk(self):
        return [(os.path.relpath(r, self.folder), sorted(d), sorted(f)) for r, d, f in os.walk(self.folder)]
    def link(self):
        return os.path.realpath(self.folder / 'a.json') == os.path.abspath(self.folder / 'a.json')
    def wipe(self):
        shutil.rmtree(self.folder)
        return self.folder.exists()
""",  # noqa: E501
    r"""
import unittest, tempfile, os, shutil
class F(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp()
        self.box = FileBox(os.path.join(self.dir, 'box'))
        self.box.save('a.json', {'x': [1]})
    def tearDown(self):
        shutil.rmtree(self.dir)
    def test_load(self):
        self.assertEqual(self.box.load('a.json'), {'x': [1]})
        self.assertEqual(self.box.names(), ['a.json'])
    def test_path(self):
        p = self.box.save('b.json', 1)
        self.assertTrue(os.path.isfile(p))
        self.assertEqual(open(p).read(), '1')
    def test_zip(self):
        self.assertEqual(self.box.zip(os.path.join(self.dir, 'z.zip')), ['a.json'])
        self.assertEqual(self.box.unzip(os.path.join(self.dir, 'z.zip'), os.path.join(self.dir, 'o')), ['a.json'])
    def test_gz(self):
        self.assertEqual(self.box.gz('q'), 'hello')
    def test_tar(self):
        self.assertEqual(self.box.tar(self.dir + '/t.tgz'), ['x', 'x/a.json'])
    def test_untar(self):
        self.box.tar(self.dir + '/t.tgz')
        self.assertEqual(self.box.untar(self.dir + '/t.tgz', self.dir + '/u'), ['x', 'x/a.json'])
    def test_rows(self):
        self.assertEqual(self.box.rows('r.csv', [['a'], ['1']]), [{'a': '1'}])
    def test_ini(self):
        self.assertEqual(self.box.ini('c.ini'), '1')
    def test_pick(self):
        self.assertEqual(self.box.pick('p', {1, 2}), {1, 2})
    def test_log(self):
        self.assertEqual(self.box.log('l.log'), 'hi\n')
    def test_copytree(self):
        self.assertEqual(self.box.copytree(self.dir + '/c'), ['a.json'])
    def test_move(self):
        self.assertEqual(self.box.move('a.json', 'b.json'), ['b.json'])
    def test_archive(self):
        self.assertEqual(self.box.archive(self.dir + '/arch'), 'arch.zip')
    def test_size(self):
        self.assertEqual(self.box.size(), 10)
    def test_walk(self):
        self.assertEqual(self.box.walk(), [('.', [], ['a.json'])])
    def test_link(self):
        self.assertTrue(self.box.link())
    def test_wipe(self):
        self.assertFalse(self.box.wipe())
        os.makedirs(self.dir, exist_ok=True)
""",  # noqa: E501
)
SHELF = (
    r"""
from pathlib import Path
import io, os, sqlite3, tempfile, zipfile
import xml.etree.ElementTree as ET
class Shelf:
    def __init__(self, root):
        self.root = Path(root)
    def child(self, n):
        return self.root / n
    def all(self):
        return sorted(self.root.iterdir())
    def read(self, p):
        return Path(p).read_text()
    def read_file(self, f):
        return f.read()
    def exists(self, p):
        return p.exists()
    def opened(self, n):
        return open(self.root / n)
    def temp(self):
        return tempfile.NamedTemporaryFile('w+', dir=self.root)
    def names(self, z):
        return z.namelist()
    def stat(self, n):
        return os.stat(self.root / n).st_size
    def use(self, conn):
        conn.execute('create table t(a)')
        conn.execute('insert into t values (1)')
        conn.commit()
        return conn.execute('select * from t').fetchall()
    def cursor_rows(self, cur):
        return [r for r in cur]
    def tree(self):
        r = ET.Element('r', a='1')
        ET.SubElement(r, 'c').text = 'x'
        return r
    def tags(self, root):
        return [e.tag for e in root.iter()]
    def dumps(self, root):
        return ET.tostring(root, encoding='unicode')
    def parse(self, text):
        return ET.fromstring(text)
    def parse_file(self, f):
        return ET.parse(f)
    def bytesio(self):
        b = io.BytesIO()
        b.write(b'abc')
        b.seek(0)
        return b
    def row(self):
        c = sqlite3.connect(':memory:')
        c.row_factory = sqlite3.Row
        return c.execute('select 1 as a, 2 as b').fetchone()
    def bad(self):
        raise ET.ParseError('x')
""",
    r"""
import unittest, os, tempfile, zipfile, io, sqlite3
import xml.etree.ElementTree as ET
from pathlib import Path
class ShelfTest(unittest.TestCase):
    def setUp(self):
        self.d = tempfile.TemporaryDirectory()
        self.p = Shelf(self.d.name)
        self.f = os.path.join(self.d.name, 'a.txt')
        with open(self.f, 'w') as f:
            f.write('hello')
    def tearDown(self):
        self.d.cleanup()
    def test_path_eq(self):
        self.assertEqual(self.p.child('x'), Path(self.d.name) / 'x')
    def test_path_str(self):
        self.assertEqual(str(self.p.child('x')), os.path.join(self.d.name, 'x'))
    def test_path_list(self):
        self.assertEqual(self.p.all(), [Path(self.f)])
    def test_path_name(self):
        self.assertEqual([q.name for q in self.p.all()], ['a.txt'])
    def test_path_arg(self):
        self.assertTrue(self.p.exists(Path(self.f)))
    def test_path_read(self):
        self.assertEqual(self.p.read(Path(self.f)), 'hello')
    def test_path_inst(self):
        self.assertIsInstance(self.p.child('x'), Path)
    def test_path_use(self):
        self.assertTrue((self.p.root / 'a.txt').exists())
        self.assertTrue(os.path.exists(self.p.child('a.txt')))
    def test_open_it(self):
        self.assertEqual(open(self.p.child('a.txt')).read(), 'hello')
    def test_file_arg(self):
        with open(self.f) as f:
            self.assertEqual(self.p.read_file(f), 'hello')
    def test_stringio(self):
        self.assertEqual(self.p.read_file(io.StringIO('q')), 'q')
    def test_opened(self):
        with self.p.opened('a.txt') as f:
            self.assertEqual(f.read(), 'hello')
    def test_absent(self):
        with self.assertRaises(FileNotFoundError) as caught:
            self.p.opened('absent')
        path = os.path.join(self.d.name, 'absent')
        self.assertEqual((caught.exception.errno, str(caught.exception.filename)), (2, path))
        self.assertEqual(str(caught.exception), "[Errno 2] No such file or directory: %r" % path)
    def test_temp(self):
        t = self.p.temp()
        t.write('x')
        t.flush()
        self.assertEqual(open(t.name).read(), 'x')
        t.close()
    def test_zip(self):
        with zipfile.ZipFile(self.d.name + '/z', 'w') as z:
            z.writestr('q', '1')
        with zipfile.ZipFile(self.d.name + '/z') as z:
            self.assertEqual(self.p.names(z), ['q'])
    def test_stat(self):
        self.assertEqual(self.p.stat('a.txt'), 5)
    def test_conn(self):
        c = sqlite3.connect(self.d.name + '/b.db')
        self.assertEqual(self.p.use(c), [(1,)])
        c.close()
    def test_cur(self):
        c = sqlite3.connect(':memory:')
        self.assertEqual(self.p.cursor_rows(c.execute('select 1 union select 2')), [(1,), (2,)])
    def test_tree(self):
        r = self.p.tree()
        self.assertEqual((r.tag, r.attrib, r.get('a'), r[0].text, len(r)), ('r', {'a': '1'}, '1', 'x', 1))
    def test_tostring(self):
        self.assertEqual(ET.tostring(self.p.tree()), b'<r a="1"><c>x</c></r>')
    def test_write(self):
        ET.ElementTree(self.p.tree()).write(self.d.name + '/o.xml')
        self.assertEqual(open(self.d.name + '/o.xml').read(), '<r a="1"><c>x</c></r>')
    def test_tags(self):
        self.assertEqual(self.p.tags(ET.fromstring('<a><b/></a>')), ['a', 'b'])
    def test_dumps(self):
        self.assertEqual(self.p.dumps(ET.fromstring('<a><b>t</b></a>')), '<a><b>t</b></a>')
    def test_parse(self):
        self.assertEqual(self.p.parse('<a>1</a>').text, '1')
    def test_parse_err(self):
        with self.assertRaises(ET.ParseError):
            self.p.parse('<a>')
    def test_bad(self):
        with self.assertRaises(ET.ParseError):
            self.p.bad()
    def test_parse_file(self):
        with open(self.d.name + '/x.xml', 'w') as f:
            f.write('<a/>')
        self.assertEqual(self.p.parse_file(self.d.name + '/x.xml').getroot().tag, 'a')
    def test_parse_fileobj(self):
        with open(self.d.name + '/x.xml', 'w') as f:
            f.write('<a/>')
        with open(self.d.name + '/x.xml') as f:
            self.assertEqual(self.p.parse_file(f).getroot().tag, 'a')
    def test_bytesio(self):
        self.assertEqual(self.p.bytesio().read(), b'abc')
    def test_row(self):
        r = self.p.row()
        self.assertEqual(r['a'], 1)
        self.assertEqual(tuple(r), (1, 2))
        self.assertEqual(dict(r), {'a': 1, 'b': 2})
        self.assertEqual(r.keys(), ['a', 'b'])
    def test_row_inst(self):
        self.assertIsInstance(self.p.row(), sqlite3.Row)
""",  # noqa: E501
)
CLASSES = {
    "xml": XML,
    "documents": DOCUMENTS,
    "books": BOOKS,
    "tickets": TICKETS,
    "store": STORE,
    "box": BOX,
    "shelf": SHELF,
}
for place, (begin, end) in PLACES.items():
    program, tests = STUDENTS
    CLASSES[f"students_in_{place}"] = (
        program,
        tests.replace("SETUP", begin).replace("TEARDOWN", end),
    )


@pytest.fixture(
    scope="module", params=widely([Level.NAMESPACES, Level.LANDLOCK], keep=[Level.NAMESPACES])
)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(workers=1, maximum=request.param, minimum=Level.LIMITS) as made:
        if made.level < request.param:
            pytest.skip(f"this machine has {made.level.name} only")
        yield made


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_passes_in_plain_python(name: str, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("\n".join(CLASSES[name]), encoding="utf-8")
    command = [sys.executable, "-m", "unittest", "-q", "task"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", CLASSES)
def test_the_class_passes_in_the_sandbox_with_its_tests_in_another_process(
    name: str, sandbox: Sandbox
) -> None:
    program, tests = CLASSES[name]
    suite = Suite.unittest(tests, together=needs_object(tests), files=needs_files(tests, program))
    assert (suite.together, suite.files) == (False, True)
    verdict = sandbox.judge_sync([program], suite)
    assert [case for case in verdict.cases if case.status != "passed"] == []
    assert verdict.failure is None
