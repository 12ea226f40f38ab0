from .base import DamagedDatabase as DamagedDatabase
from .base import Database as Database
from .base import DatabaseAway as DatabaseAway
from .base import Schema as Schema
from .base import UnwritableDatabase as UnwritableDatabase
from .base import lab_database as lab_database
from .postgresql import PostgresDatabase as PostgresDatabase
from .sqlite import SqliteDatabase as SqliteDatabase
